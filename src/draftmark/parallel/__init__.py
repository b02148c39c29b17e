"""Where a rank stands and how parameters are split over tensor-parallel ranks."""
