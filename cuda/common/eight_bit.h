// Weights of 8 bits, which one fp32 scale per output of a product multiplies.
#pragma once

enum WeightFormat { WEIGHT_INT8 = 0, WEIGHT_E4M3 = 1 };
