//! Connection to etcd: endpoints, TLS, and credentials.
//!
//! A [`Client`] balances its calls over its endpoints and reconnects by itself. It does not notice
//! an endpoint that hangs with its connections open. So every call has a time limit ([`within`]),
//! and [`EtcdLink`] tries one endpoint after another.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::ConnectOptions;
use tollgate_net::files::{self, FileReader};
use tollgate_net::tls::{Credentials, TlsError};

use crate::config::EtcdConfig;

mod link;

pub use etcd_client::Client;
pub use link::EtcdLink;

/// Time for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Silence before a keep-alive is sent, and time for its answer. etcd closes connections with more
/// than one keep-alive in five seconds.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

/// Longest password, in bytes.
const PASSWORD_LEN_MAX: usize = 4096;

/// Reason for which a call to etcd failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// A file for the connection cannot be read.
    #[error("{}: {cause}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// Reading the files hangs.
    #[error("the files of cluster.etcd: {0}")]
    Hangs(std::io::Error),
    /// A file for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The password is not valid.
    #[error("{}: is empty, is not text or has more than {PASSWORD_LEN_MAX} bytes", .0.display())]
    Password(PathBuf),
    /// It refused the call, or could not be reached.
    #[error("etcd: {0}")]
    Call(#[from] etcd_client::Error),
    /// It did not answer in time.
    #[error("etcd did not answer within {0:?}")]
    Timeout(Duration),
}

/// Content of the files that `cluster.etcd` names.
struct EtcdSecrets {
    tls: Option<Credentials>,
    password: Option<String>,
}

/// Connects to `endpoints`, which are some of `config`'s; `files` reads the files that it names.
///
/// # Errors
/// If a file cannot be used, or etcd does not accept the user. An endpoint that cannot be reached
/// fails the first call only, unless there is a user.
pub async fn connect(
    config: &EtcdConfig,
    files: &FileReader,
    endpoints: &[String],
) -> Result<Client, EtcdError> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_keep_alive(KEEPALIVE.0, KEEPALIVE.1)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    let EtcdSecrets { tls, password } = secrets(config, files).await?;
    if let Some(tls) = tls {
        options = options.with_tls(tls.tonic());
    }
    if let Some((login, password)) = config.login.as_ref().zip(password) {
        options = options
            .with_user(login.user.clone(), password)
            .with_auto_token_refresh(true);
    }
    Ok(Client::connect(endpoints, Some(options)).await?)
}

/// Awaits `call` for at most `limit`.
///
/// # Errors
/// Those of `call`, and [`EtcdError::Timeout`].
pub async fn within<T, E: Into<EtcdError>>(
    limit: Duration,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, EtcdError> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(EtcdError::Timeout(limit)),
    }
}

/// Reads the files that `config` names off the runtime.
async fn secrets(config: &EtcdConfig, files: &FileReader) -> Result<EtcdSecrets, EtcdError> {
    if config.tls.is_none() && config.login.is_none() {
        return Ok(EtcdSecrets {
            tls: None,
            password: None,
        });
    }
    let config = config.clone();
    let read = files.run(move || {
        let tls = config.tls.as_ref().map(|tls| tls.load()).transpose()?;
        let login = config.login.as_ref();
        let password = login.map(|login| password(&login.password_file));
        Ok(EtcdSecrets {
            tls,
            password: password.transpose()?,
        })
    });
    read.await.map_err(EtcdError::Hangs)?
}

fn password(file: &Path) -> Result<String, EtcdError> {
    let text = String::from_utf8(read(file)?).unwrap_or_default();
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.len() > PASSWORD_LEN_MAX {
        return Err(EtcdError::Password(file.to_owned()));
    }
    Ok(password.to_owned())
}

fn read(file: &Path) -> Result<Vec<u8>, EtcdError> {
    // Room for an end of line, and one byte more than is accepted.
    let read = files::read(file, PASSWORD_LEN_MAX as u64 + 3);
    let read = read.map_err(|cause| EtcdError::File {
        file: file.to_owned(),
        cause,
    });
    Ok(read?.0)
}
