"""The commands of `gpusteward`, one file each."""
