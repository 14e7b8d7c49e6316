"""What a maintainer publishes: images, chart, files, signatures. docs/release.md is the way through it."""
