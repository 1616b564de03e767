"""What of ddprun is Python: the exporter of models (ddprun.export). It runs at your desk; no job needs it."""
