"""A model divided over devices: tensor parallel (``split``), pipeline stages (``stages``), and both with data
parallel replicas as one call (``placed``)."""
