"""What a profile says: verdict, recommendations, figures, and two of them compared."""
