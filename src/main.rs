//! The `deltafs` command.

fn main() {}
