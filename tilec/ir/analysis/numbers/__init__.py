"""How large integers of a kernel get, on the host and on a device, and in how many bits."""
