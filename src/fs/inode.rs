//! Inode numbers and how often the kernel has looked each one up.

use std::collections::HashMap;

use super::Ino;
use super::node::Node;

#[derive(Debug)]
struct Known {
    key: Vec<u8>,
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
    ///
    /// What it replaces comes back, to be dropped without the lock: it may hold the last descriptor of a large file.
    pub(super) fn look_up(&mut self, node: Node) -> (Ino, Option<Node>) {
        let key = node.key();
        let mut ino = node.number();
        loop {
            match self.known.get_mut(&ino) {
                Some(known) if known.key == key => {
                    known.lookups += 1;
                    return (ino, Some(std::mem::replace(&mut known.node, node)));
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
                    return (ino, None);
                }
            }
        }
    }

    /// Gives the node of a known file its new form (a staged file that has been committed).
    pub(super) fn replace(&mut self, node: &Node) -> Option<Node> {
        let key = node.key();
        let mut ino = node.number();
        while let Some(known) = self.known.get_mut(&ino) {
            if known.key == key {
                return Some(std::mem::replace(&mut known.node, node.clone()));
            }
            ino = Ino(ino.0.wrapping_add(1).max(2));
        }
        None
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The node that the kernel does not know any more, to be dropped without the lock.
    pub(super) fn forget(&mut self, ino: Ino, count: u64) -> Option<Node> {
        let known = self.known.get_mut(&ino).filter(|_| ino != Ino::ROOT)?;
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 {
            return None;
        }
        self.known.remove(&ino).map(|known| known.node)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_number_lives_as_long_as_its_lookups() {
        let mut inodes = Inodes::new(Node::Dir(PathBuf::new()));
        let (a, _) = inodes.look_up(Node::Foreign(PathBuf::from("a")));
        assert_eq!(inodes.look_up(Node::Foreign(PathBuf::from("a"))).0, a);
        let (b, _) = inodes.look_up(Node::Foreign(PathBuf::from("b")));
        assert_ne!(a, b);
        inodes.forget(a, 1);
        assert!(inodes.node(a).is_some());
        inodes.forget(a, 1);
        assert!(inodes.node(a).is_none());
        assert_eq!(inodes.look_up(Node::Foreign(PathBuf::from("a"))).0, a);
        inodes.forget(Ino::ROOT, 9);
        assert!(inodes.node(Ino::ROOT).is_some());
    }
}
