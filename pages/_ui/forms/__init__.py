"""Controls that several pages share: parameters, masks, implementations, occupancy."""
