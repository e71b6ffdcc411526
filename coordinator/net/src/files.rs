//! Files that people name in the configuration: the configuration itself, certificates, passwords.
//!
//! A path can name anything: a pipe without a writer, a device, a file on a network file system
//! that does not answer. Opening or reading such a path can block for ever, and a thread that blocks
//! in the kernel cannot be stopped. So [`read`] takes regular files only and opens them without
//! waiting, and a [`FileReader`] reads on a thread of its own and waits no longer than a deadline.
//! tokio's own blocking threads would not do: the runtime waits for them when it ends.

use std::fs::{self, FileType, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::oneshot;

/// Time limit of reading a file: far longer than a slow disk takes, and short beside the time in which
/// an operator expects a changed file to be in force.
pub const READ_DEADLINE: Duration = Duration::from_secs(5);

/// Reads files off the runtime, one at a time, each within a deadline.
#[derive(Clone, Debug)]
pub struct FileReader {
    deadline: Duration,
    /// A read is under way, perhaps one that was given up.
    busy: Arc<AtomicBool>,
}

/// Marks the reader as free again, also after a panic.
struct BusyGuard(Arc<AtomicBool>);

// === impl FileReader ===

impl FileReader {
    /// A reader that gives up after `deadline`.
    pub fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            busy: Arc::default(),
        }
    }

    /// Runs `read`, which may block, on a thread of its own.
    ///
    /// A read that was given up keeps its thread for as long as it hangs. Until it returns every
    /// further one is refused at once, so there is never more than one thread.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if `read` hangs or an earlier one still does, and the system's
    /// reason if there is no thread for it.
    pub async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        if self.busy.swap(true, Ordering::Relaxed) {
            return Err(timed_out("an earlier read of it has not returned yet"));
        }
        let busy = BusyGuard(self.busy.clone());
        let (send, done) = oneshot::channel();
        thread::Builder::new()
            .name("file reader".to_owned())
            .spawn(move || {
                let result = read();
                drop(busy);
                // A reader that gave up does not listen any more.
                let _ = send.send(result);
            })?;
        match tokio::time::timeout(self.deadline, done).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(io::Error::other("the thread that read it panicked")),
            Err(_) => Err(timed_out(format!(
                "reading it did not end within {:?}",
                self.deadline
            ))),
        }
    }
}

impl Default for FileReader {
    fn default() -> Self {
        Self::new(READ_DEADLINE)
    }
}

// === impl BusyGuard ===

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

// === free functions ===

/// Reads the first `len_max` bytes of `path`, which must be a regular file or a link to one; also
/// returns its permissions.
///
/// # Errors
/// If it is anything else or cannot be read. Only a file system can make this block.
pub fn read(path: &Path, len_max: u64) -> io::Result<(Vec<u8>, u32)> {
    // Looked at first because opening a device can have effects.
    check_regular(&fs::metadata(path)?)?;
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)?;
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    let mut bytes = Vec::new();
    file.take(len_max).read_to_end(&mut bytes)?;
    Ok((bytes, metadata.mode()))
}

/// Checks that `metadata` is of a regular file.
///
/// # Errors
/// The kind of file that it is of.
pub fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let kind = kind(metadata.file_type());
    let text = format!("is {kind}, and only a regular file is read");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn kind(file: FileType) -> &'static str {
    if file.is_dir() {
        "a directory"
    } else if file.is_fifo() {
        "a pipe"
    } else if file.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn timed_out(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, text.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;

    use rustix::fs::{CWD, FileType as Kind, Mode};
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_regular_file_is_read_up_to_the_bound_also_through_links() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "0123456789").unwrap();
        let link = dir.path().join("link");
        symlink("file", &link).unwrap();
        assert_eq!(read(&path, 4).unwrap().0, b"0123");
        assert_eq!(read(&link, 100).unwrap().0, b"0123456789");
    }

    #[test]
    fn anything_else_is_refused_without_waiting() {
        let dir = TempDir::new().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, Kind::Fifo, Mode::RUSR, 0).unwrap();
        let link = dir.path().join("link");
        symlink("pipe", &link).unwrap();
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let rows = [
            (pipe.as_path(), "is a pipe"),
            (&link, "is a pipe"),
            (&socket, "is a socket"),
            (dir.path(), "is a directory"),
            (Path::new("/dev/zero"), "is a device"),
        ];
        for (path, want) in rows {
            let error = read(path, 100).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{want}, and only a regular file is read")
            );
        }
    }

    #[tokio::test]
    async fn a_read_that_hangs_is_given_up_and_keeps_one_thread() {
        let reader = FileReader::new(Duration::from_millis(5));
        let (release, hang) = mpsc::channel::<()>();
        let (ended, has_ended) = oneshot::channel::<()>();
        let hanging = reader.run(move || {
            let _ = hang.recv();
            drop(ended);
        });
        let error = hanging.await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "reading it did not end within 5ms");
        // The next ones start no thread.
        for _ in 0..3 {
            let error = reader.run(|| panic!("must not run")).await.unwrap_err();
            let want = "an earlier read of it has not returned yet";
            assert_eq!(error.to_string(), want);
        }
        drop(release);
        assert!(has_ended.await.is_err());
        // The flag falls right after.
        while reader.busy.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let patient = FileReader {
            deadline: Duration::from_secs(600),
            ..reader
        };
        assert_eq!(patient.run(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_read_that_panics_leaves_the_reader_free() {
        let reader = FileReader::default();
        let error = reader.run(|| panic!("on purpose")).await.unwrap_err();
        assert_eq!(error.to_string(), "the thread that read it panicked");
        while reader.busy.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        assert_eq!(reader.run(|| 7).await.unwrap(), 7);
    }

    #[test]
    fn a_runtime_ends_although_a_read_hangs() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (_release, hang) = mpsc::channel::<()>();
        let reader = FileReader::new(Duration::from_millis(1));
        let hanging = reader.run(move || hang.recv());
        assert!(runtime.block_on(hanging).is_err());
        drop(runtime);
    }
}
