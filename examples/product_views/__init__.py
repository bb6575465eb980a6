"""Product views: one alert for each product that becomes popular."""
