"""The policy at work in the daemon: it hears snapshots, decides, and has actions carried out."""
