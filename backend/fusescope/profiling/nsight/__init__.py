"""Import of Nsight Compute and Nsight Systems exports."""
