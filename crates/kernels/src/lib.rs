//! Slices become slices: quantised maths and the worker pool. No I/O, no policy, no models.
