"""Tests with a real broker, and the Java programs that penstock is compared with."""
