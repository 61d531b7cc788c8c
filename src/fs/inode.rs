//! Inode numbers and how often the kernel has looked each one up.

use std::collections::HashMap;

use super::Ino;
use super::node::Node;

#[derive(Debug)]
struct Known {
    key: String,
    node: Node,
    lookups: u64,
}

/// The inodes that the kernel knows.
#[derive(Debug)]
pub(super) struct Inodes {
    known: HashMap<Ino, Known>,
}

impl Inodes {
    pub(super) fn new(root: Node) -> Self {
        let mut known = HashMap::new();
        known.insert(
            Ino::ROOT,
            Known {
                key: root.key(),
                node: root,
                lookups: 1,
            },
        );
        Inodes { known }
    }

    pub(super) fn node(&self, ino: Ino) -> Option<&Node> {
        self.known.get(&ino).map(|k| &k.node)
    }

    /// Counts a lookup of `node` and gives its number. A later form of the same file replaces the earlier one.
    pub(super) fn look_up(&mut self, node: Node) -> Ino {
        let key = node.key();
        let mut ino = node.number();
        loop {
            match self.known.get_mut(&ino) {
                Some(known) if known.key == key => {
                    known.lookups += 1;
                    known.node = node;
                    return ino;
                }
                // Two keys with one hash: the later one takes the next number.
                Some(_) => ino = Ino(ino.0.wrapping_add(1).max(2)),
                None => {
                    self.known.insert(
                        ino,
                        Known {
                            key,
                            node,
                            lookups: 1,
                        },
                    );
                    return ino;
                }
            }
        }
    }

    /// Gives the node of a known file its new form (a staged file that has been committed).
    pub(super) fn replace(&mut self, node: &Node) {
        let key = node.key();
        let mut ino = node.number();
        while let Some(known) = self.known.get_mut(&ino) {
            if known.key == key {
                known.node = node.clone();
                return;
            }
            ino = Ino(ino.0.wrapping_add(1).max(2));
        }
    }

    pub(super) fn forget(&mut self, ino: Ino, count: u64) {
        if ino == Ino::ROOT {
            return;
        }
        if let Some(known) = self.known.get_mut(&ino) {
            known.lookups = known.lookups.saturating_sub(count);
            if known.lookups == 0 {
                self.known.remove(&ino);
            }
        }
    }

    /// All that the kernel knows.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.known.iter().map(|(ino, known)| (*ino, &known.node))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_number_lives_as_long_as_its_lookups() {
        let mut inodes = Inodes::new(Node::Dir(PathBuf::new()));
        let a = inodes.look_up(Node::Foreign(PathBuf::from("a")));
        assert_eq!(inodes.look_up(Node::Foreign(PathBuf::from("a"))), a);
        let b = inodes.look_up(Node::Foreign(PathBuf::from("b")));
        assert_ne!(a, b);
        inodes.forget(a, 1);
        assert!(inodes.node(a).is_some());
        inodes.forget(a, 1);
        assert!(inodes.node(a).is_none());
        assert_eq!(inodes.look_up(Node::Foreign(PathBuf::from("a"))), a);
        inodes.forget(Ino::ROOT, 9);
        assert!(inodes.node(Ino::ROOT).is_some());
    }
}
