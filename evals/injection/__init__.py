"""The injection detector: training, calibration and evaluation."""
