"""What the specs of several job kinds have in common: their parameters and checks. No torch."""
