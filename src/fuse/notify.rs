//! Tells the kernel what to forget.
//!
//! # Why threads of its own
//! A notification waits inside the kernel for locks that requests hold: sent by a request's own handler it would be
//! a deadlock beyond SIGKILL. Names wait for their directory's lock, which a slow RENAME holds for long; inodes wait
//! for pages only. So there are two threads, and a commit of one table does not delay the news of another's content.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use fuser::{INodeNo, Notifier};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::fs::{Ino, Invalidate};

/// The kernel's side: fuser's notifier, or a test.
pub(super) trait Kernel: Clone + Send + 'static {
    fn forget_pages(&self, ino: Ino) -> io::Result<()>;
    fn forget_attributes(&self, ino: Ino) -> io::Result<()>;
    fn forget_name(&self, parent: Ino, name: &OsStr) -> io::Result<()>;
}

impl Kernel for Notifier {
    fn forget_pages(&self, ino: Ino) -> io::Result<()> {
        self.inval_inode(INodeNo(ino.0), 0, 0)
    }

    fn forget_attributes(&self, ino: Ino) -> io::Result<()> {
        // A negative offset leaves the pages alone.
        self.inval_inode(INodeNo(ino.0), -1, 0)
    }

    fn forget_name(&self, parent: Ino, name: &OsStr) -> io::Result<()> {
        self.inval_entry(INodeNo(parent.0), name)
    }
}

/// The running notifier. Ends when dropped, or when the file system drops its end of the queue.
pub(super) struct Notifications {
    sorter: AbortHandle,
    /// What is queued still is of no use any more.
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Notifications {
    /// Starts to deliver.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn start(
        queue: UnboundedReceiver<Invalidate>,
        kernel: impl Kernel,
        io: &Handle,
    ) -> io::Result<Self> {
        let (names, names_in) = mpsc::channel();
        let (inodes, inodes_in) = mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        let threads = vec![
            deliver("fuse-names", names_in, kernel.clone(), over.clone())?,
            deliver("fuse-inodes", inodes_in, kernel, over.clone())?,
        ];
        let sorter = io.spawn(sort(queue, names, inodes)).abort_handle();
        Ok(Notifications {
            sorter,
            over,
            threads,
        })
    }

    /// Stops and waits for the threads. For after the end of the connection: until then one may be waiting inside
    /// the kernel.
    pub(super) fn stop(mut self) {
        self.sorter.abort();
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                debug!("a notifier thread has panicked");
            }
        }
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.sorter.abort();
    }
}

async fn sort(
    mut queue: UnboundedReceiver<Invalidate>,
    names: Sender<Invalidate>,
    inodes: Sender<Invalidate>,
) {
    while let Some(item) = queue.recv().await {
        let thread = match item {
            Invalidate::Name { .. } => &names,
            Invalidate::Content(_) | Invalidate::Attributes(_) => &inodes,
        };
        if thread.send(item).is_err() {
            return;
        }
    }
}

fn deliver(
    name: &str,
    queue: Receiver<Invalidate>,
    kernel: impl Kernel,
    over: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        while let Ok(first) = queue.recv() {
            // What has piled up meanwhile, each item once.
            let mut batch = HashSet::from([first]);
            batch.extend(queue.try_iter());
            for item in &batch {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let result = match item {
                    Invalidate::Content(ino) => kernel.forget_pages(*ino),
                    // Covered by the item above.
                    Invalidate::Attributes(ino) if batch.contains(&Invalidate::Content(*ino)) => {
                        Ok(())
                    }
                    Invalidate::Attributes(ino) => kernel.forget_attributes(*ino),
                    Invalidate::Name { parent, name } => kernel.forget_name(*parent, name),
                };
                if let Err(error) = result {
                    debug!(?item, %error, "not invalidated");
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[derive(Clone, Default)]
    struct Recorder {
        calls: Arc<Mutex<Vec<String>>>,
        /// Names are held up until this lock is free, as by a slow RENAME.
        directory: Arc<Mutex<()>>,
    }

    impl Recorder {
        fn note(&self, call: String) -> io::Result<()> {
            self.calls.lock().unwrap().push(call);
            Ok(())
        }
    }

    impl Kernel for Recorder {
        fn forget_pages(&self, ino: Ino) -> io::Result<()> {
            self.note(format!("pages {}", ino.0))
        }
        fn forget_attributes(&self, ino: Ino) -> io::Result<()> {
            self.note(format!("attributes {}", ino.0))
        }
        fn forget_name(&self, parent: Ino, name: &OsStr) -> io::Result<()> {
            let _held = self.directory.lock().unwrap();
            self.note(format!("name {} {}", parent.0, name.display()))
        }
    }

    fn name(text: &str) -> Invalidate {
        Invalidate::Name {
            parent: Ino(1),
            name: text.into(),
        }
    }

    fn drain(items: Vec<Invalidate>) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let recorder = Recorder::default();
        let (queue, receiver) = unbounded_channel();
        for item in items {
            queue.send(item).unwrap();
        }
        drop(queue);
        let mut running =
            Notifications::start(receiver, recorder.clone(), runtime.handle()).unwrap();
        for thread in running.threads.drain(..) {
            thread.join().unwrap();
        }
        let mut calls = recorder.calls.lock().unwrap().clone();
        calls.sort();
        calls
    }

    #[test]
    fn everything_queued_is_delivered() {
        assert_eq!(
            drain(vec![
                Invalidate::Content(Ino(2)),
                Invalidate::Attributes(Ino(3)),
                name("x")
            ]),
            ["attributes 3", "name 1 x", "pages 2"]
        );
    }

    #[test]
    fn a_held_directory_does_not_delay_inodes() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let recorder = Recorder::default();
        let held = recorder.directory.lock().unwrap();
        let (queue, receiver) = unbounded_channel();
        let mut running =
            Notifications::start(receiver, recorder.clone(), runtime.handle()).unwrap();
        queue.send(name("held")).unwrap();
        queue.send(Invalidate::Content(Ino(9))).unwrap();
        drop(queue);
        let inodes = running.threads.pop().unwrap();
        inodes.join().unwrap();
        assert_eq!(*recorder.calls.lock().unwrap(), ["pages 9"]);
        drop(held);
        running.threads.pop().unwrap().join().unwrap();
        assert_eq!(*recorder.calls.lock().unwrap(), ["pages 9", "name 1 held"]);
    }
}
