"""What an application reports: metrics, task metadata, restore progress, printed lines."""
