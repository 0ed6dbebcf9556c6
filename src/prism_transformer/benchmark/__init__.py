"""What a schedule costs on this device, measured side by side."""
