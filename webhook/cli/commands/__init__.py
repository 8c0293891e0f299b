"""The commands of ``gpufence``, one module each."""
