//! The life of a mount: attach, serve, end on unmount or signal, settle.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};

use super::Translator;
use super::backing::Backings;
use super::mount::{Attached, Detached, device_can_be_opened};
use super::notify::Notifications;
use crate::env::Env;
use crate::error::{Failure, Kind, io_kind};
use crate::fs::FileSystem;
use crate::settings::Settings;

/// Threads that read requests. They never wait, but with one of them a burst of large writes is copied by one core.
const THREADS: usize = 4;
/// For requests that still run after the end of the mount: RELEASE only, since everything else keeps it busy.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// For `shutdown` after a second signal, when somebody is in a hurry.
const HURRIED_SHUTDOWN: Duration = Duration::from_secs(10);

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    #[error("cannot open /dev/fuse: {0}")]
    Device(#[source] io::Error),
    #[error("cannot mount on {path}: {source}", path = path.display())]
    Mount { path: PathBuf, source: io::Error },
    #[error("{path} has just been mounted by somebody else", path = .0.display())]
    Covered(PathBuf),
    #[error("cannot run fusermount3: {0}")]
    NoHelper(#[source] io::Error),
    #[error("{0}")]
    Helper(String),
    #[error("the kernel's greeting failed: {0}")]
    Handshake(#[source] io::Error),
    #[error("the mounted directory does not answer: {0}")]
    Unusable(#[source] io::Error),
    #[error("serving the mount: {0}")]
    Serve(#[source] io::Error),
    #[error("ended by a second signal while files were open")]
    Hurried,
}

impl Failure for FuseError {
    fn kind(&self) -> Kind {
        match self {
            FuseError::Device(error)
            | FuseError::NoHelper(error)
            | FuseError::Handshake(error)
            | FuseError::Unusable(error)
            | FuseError::Serve(error)
            | FuseError::Mount { source: error, .. } => io_kind(error),
            FuseError::Covered(_) => Kind::Conflict,
            FuseError::Helper(_) => Kind::Denied,
            FuseError::Hurried => Kind::Unavailable,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            FuseError::Device(error) if error.kind() == io::ErrorKind::NotFound => {
                "load the kernel module `fuse`; in a container, pass the device in (`--device /dev/fuse`)"
            }
            FuseError::Device(_) => "without root, /dev/fuse has to be readable and writable",
            FuseError::NoHelper(_) => {
                "mounting takes root (CAP_SYS_ADMIN), or fusermount3 from the package `fuse3`"
            }
            FuseError::Helper(said) if said.contains("user_allow_other") => {
                "put `user_allow_other` into /etc/fuse.conf, or leave out allow_other"
            }
            FuseError::Helper(_) => {
                "without root, the mountpoint has to be yours and /dev/fuse open to you"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// A mount that answers.
pub struct Mounted<F> {
    fs: Arc<F>,
    io: Handle,
    attached: Arc<Attached>,
    signals: Signals,
    notifications: Option<Notifications>,
    session: JoinHandle<io::Result<()>>,
    ended: oneshot::Receiver<Infallible>,
    running: mpsc::Receiver<Infallible>,
}

/// Mounts a file system and starts to serve it. When this returns, the mount can be used.
///
/// # Errors
/// When it cannot be mounted or does not answer; nothing is left mounted then.
pub fn mount<F: FileSystem>(
    fs: F,
    settings: &Settings,
    env: Env,
    io: &Handle,
) -> Result<Mounted<F>, FuseError> {
    let fs = Arc::new(fs);
    let signals = {
        let _inside = io.enter();
        Signals::new().map_err(FuseError::Serve)?
    };
    let (still_running, running) = mpsc::channel(1);
    let translator = Translator {
        fs: fs.clone(),
        io: io.clone(),
        env,
        passthrough: settings.passthrough,
        backings: Arc::new(Backings::new(true)),
        running: still_running,
    };
    let (device, attached) = Attached::new(settings)?;
    let attached = Arc::new(attached);
    let give_up = |error| {
        if let Err(error) = attached.detach(true) {
            warn!(%error, "the failed mount stays");
        }
        error
    };

    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    config.clone_fd = device_can_be_opened();
    // The kernel itself turns others away unless allow_other is given.
    let session = Session::from_fd(translator, device, SessionACL::All, config)
        .map_err(|error| give_up(FuseError::Handshake(error)))?;
    let notifications = fs
        .take_invalidations()
        .map(|queue| Notifications::start(queue, session.notifier(), io))
        .transpose()
        .map_err(|error| give_up(FuseError::Serve(error)))?;
    let (at_end, ended) = oneshot::channel();
    let session = thread::Builder::new()
        .name("fuse-session".to_owned())
        .spawn(move || {
            let result = session.run();
            drop(at_end);
            result
        })
        .map_err(|error| give_up(FuseError::Serve(error)))?;
    std::fs::metadata(&settings.mountpoint).map_err(|error| give_up(FuseError::Unusable(error)))?;
    info!(mountpoint = %settings.mountpoint.display(), "mounted");
    Ok(Mounted {
        fs,
        io: io.clone(),
        attached,
        signals,
        notifications,
        session,
        ended,
        running,
    })
}

impl<F: FileSystem> Mounted<F> {
    /// Serves until somebody unmounts or a signal says so, then lets the file system settle.
    ///
    /// # Errors
    /// When the connection broke, or a second signal cut the wait for open files short.
    pub fn wait(mut self) -> Result<(), FuseError> {
        let io = self.io.clone();
        io.block_on(async {
            tokio::select! {
                _ = &mut self.ended => {
                    info!("unmounted");
                    self.settle().await
                }
                name = self.signals.next() => {
                    info!(signal = name, "unmounting");
                    self.detach_and_settle().await
                }
            }
        })
    }

    /// Unmounts as a signal would do.
    ///
    /// # Errors
    /// As of [`Mounted::wait`].
    pub fn end(self) -> Result<(), FuseError> {
        let io = self.io.clone();
        io.block_on(self.detach_and_settle())
    }

    async fn detach_and_settle(mut self) -> Result<(), FuseError> {
        if detach(&self.attached, false).await == Some(Detached::Busy) {
            // It leaves the tree now and lives on until its last close.
            warn!("busy: detached, waiting for the last file to be closed");
            detach(&self.attached, true).await;
        }
        tokio::select! {
            _ = &mut self.ended => self.settle().await,
            name = self.signals.next() => {
                warn!(signal = name, "ending with open files");
                if timeout(HURRIED_SHUTDOWN, self.fs.shutdown()).await.is_err() {
                    warn!("the file system has not settled in time");
                }
                Err(FuseError::Hurried)
            }
        }
    }

    async fn settle(mut self) -> Result<(), FuseError> {
        let result = match self.session.join() {
            Ok(result) => result,
            Err(_) => Err(io::Error::other("a thread has panicked")),
        };
        if result.is_err() {
            // Not an unmount: leave no dead mount behind.
            detach(&self.attached, true).await;
        }
        if timeout(SETTLE_TIMEOUT, self.running.recv()).await.is_err() {
            warn!("some requests have not ended in time");
        }
        self.fs.shutdown().await;
        if let Some(notifications) = self.notifications {
            notifications.stop();
        }
        info!("ended");
        result.map_err(FuseError::Serve)
    }
}

/// On a thread that may wait: unmounting can ask this very process for something.
async fn detach(attached: &Arc<Attached>, lazily: bool) -> Option<Detached> {
    let attached = attached.clone();
    let result = tokio::task::spawn_blocking(move || attached.detach(lazily)).await;
    match result {
        Ok(Ok(outcome)) => Some(outcome),
        Ok(Err(error)) => {
            warn!(%error, "cannot unmount");
            None
        }
        Err(error) => {
            warn!(%error, "cannot unmount");
            None
        }
    }
}

/// The signals that end a mount.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
