//! The binary `adit`.

fn main() {}
