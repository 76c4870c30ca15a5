//! The serving certificate, reloaded when its files change.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio_rustls::rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{io::health::Entry, metrics::Metrics};

/// Period in which the files are compared with the loaded content. They are small, and kubelet replaces them together.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Paths of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The chain, in PEM.
    pub certificate: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
    /// The authorities of accepted clients. `None`: every client is accepted.
    pub client_ca: Option<PathBuf>,
}

/// The serving certificate, which may change at any time.
#[derive(Clone, Default)]
pub struct Certificate {
    current: Arc<RwLock<Option<Arc<ServerConfig>>>>,
    expiry_metrics: Option<(&'static str, Metrics)>,
}

impl Certificate {
    /// Holds no certificate yet. Reports the expiry of a loaded certificate in metrics under this name.
    pub fn counted(name: &'static str, metrics: &Metrics) -> Self {
        Self { expiry_metrics: Some((name, metrics.clone())), ..Self::default() }
    }

    /// Creates a self-signed certificate. It protects against eavesdropping, but not against a server that impersonates this one.
    ///
    /// # Errors
    /// One line, if it cannot be created.
    pub fn self_signed(self, names: &[&str]) -> Result<Self, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made =
            rcgen::generate_simple_self_signed(names).map_err(|e| format!("cannot create a certificate: {e}"))?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(str::to_owned)?;
        let chain = vec![made.cert.der().clone()];
        self.report_expiry(&chain);
        self.serve(served_with(chain, key, None)?);
        Ok(self)
    }

    fn serve(&self, config: ServerConfig) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(config));
    }

    fn report_expiry(&self, chain: &[CertificateDer<'_>]) {
        if let Some(((name, metrics), until)) = self.expiry_metrics.as_ref().zip(expiry_of_chain(chain)) {
            metrics.certificate(name, until);
        }
    }

    /// Returns the TLS configuration for new connections. `None` until a certificate is loaded.
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads the files, and again whenever they change, until `stop`. If the new files cannot be used, the last certificate stays
    /// in use.
    pub async fn keep(self, files: Files, entry: Entry, stop: CancellationToken) {
        let (mut last, mut reported) = (None, None);
        loop {
            self.check(&files, &mut last, &mut reported, &entry);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
        }
    }

    /// Checks the files once. `last`: the content that is served. `reported`: the last reported problem of the current files.
    fn check(&self, files: &Files, last: &mut Option<Content>, reported: &mut Option<String>, entry: &Entry) {
        entry.trying();
        let read = Content::read(files);
        if read.as_ref().ok() == last.as_ref() && last.is_some() {
            return;
        }
        match read.and_then(|content| Ok((content.config()?, content))) {
            Ok((config, content)) => {
                self.report_expiry(&certificates(&content.certificate).unwrap_or_default());
                self.serve(config);
                (*last, *reported) = (Some(content), None);
                entry.synced();
                tracing::info!(certificate = %files.certificate.display(), "serving certificate read");
            }
            // The last certificate still works: report the problem and keep serving it.
            Err(why) if last.is_some() => {
                if reported.as_ref() != Some(&why) {
                    tracing::warn!(why, "serving certificate changed and cannot be used: the earlier one stays in use");
                    *reported = Some(why);
                }
                entry.synced();
            }
            Err(why) => {
                if entry.failed(&why) {
                    let meanwhile = if self.current().is_some() {
                        "the one created at startup is served"
                    } else {
                        "every connection is refused"
                    };
                    tracing::warn!(why, meanwhile, "no serving certificate");
                }
            }
        }
    }
}

/// Content of the files.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl Content {
    fn read(files: &Files) -> Result<Self, String> {
        let read = |path: &Path| fs::read(path).map_err(|e: io::Error| format!("{}: {e}", path.display()));
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
        })
    }

    /// Makes the TLS configuration. Errors name the problem but nothing of a key.
    fn config(&self) -> Result<ServerConfig, String> {
        let chain = certificates(&self.certificate).map_err(|()| "the certificate is not PEM".to_owned())?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| "the private key is not PEM".to_owned())?;
        served_with(chain, key, self.client_ca.as_deref())
    }
}

/// Makes the TLS configuration of a server. With authorities, only their clients are accepted.
fn served_with(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    client_ca: Option<&[u8]>,
) -> Result<ServerConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(text) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(text).map_err(|()| "the clients' authority is not PEM".to_owned())? {
                roots.add(root).map_err(|e| format!("the clients' authority: {e}"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|e| format!("the clients' authority: {e}"))?)
        }
    };
    // This fails if the key belongs to another certificate.
    let mut config = builder.with_single_cert(chain, key).map_err(|e| format!("the certificate: {e}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, ()> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(drop)?;
    if all.is_empty() { Err(()) } else { Ok(all) }
}

/// Returns the first expiry of the certificates in a PEM text, in seconds since 1970. `None` if it has none, or if one cannot be
/// parsed.
pub fn expiry_of_pem(text: &[u8]) -> Option<i64> {
    expiry_of_chain(&certificates(text).ok()?)
}

/// Returns the first expiry of a chain's certificates in seconds since 1970. `None` if one cannot be parsed. Verifies nothing.
fn expiry_of_chain(chain: &[CertificateDer<'_>]) -> Option<i64> {
    chain.iter().map(|certificate| expiry(certificate)).collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Returns the expiry of a certificate in seconds since 1970.
fn expiry(der: &[u8]) -> Option<i64> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then(|| certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::io::health::Health;

    /// A certificate for `localhost` and its key.
    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    /// Metrics are served before the files exist, as by the Go operator.
    #[test]
    fn certificate_self_signed_is_served_until_the_files_exist() {
        let dir = std::env::temp_dir().join(format!("serving-{:016x}", fastrand::u64(..)));
        fs::create_dir(&dir).unwrap();
        let files = Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), client_ca: None };
        let served = Certificate::default().self_signed(&["localhost"]).unwrap();
        let health = Health::default();
        let entry = health.tenant_watch("serving certificate".into());
        let (made, mut last, mut reported) = (served.current().unwrap(), None, None);
        served.check(&files, &mut last, &mut reported, &entry);
        assert!(Arc::ptr_eq(&made, &served.current().unwrap()));
        assert!(health.noted()[0].contains("tls.crt"), "and the missing file is reported: {:?}", health.noted());
        let (certificate, key) = pair();
        fs::write(&files.certificate, certificate).unwrap();
        fs::write(&files.key, key).unwrap();
        served.check(&files, &mut last, &mut reported, &entry);
        assert!(!Arc::ptr_eq(&made, &served.current().unwrap()) && health.noted().is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn certificate_last_usable_one_is_served() {
        let dir = std::env::temp_dir().join(format!("serving-{:016x}", fastrand::u64(..)));
        fs::create_dir(&dir).unwrap();
        let files = Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), client_ca: None };
        let (health, served) = (Health::default(), Certificate::default());
        let entry = health.watch("serving certificate".into());
        let (mut last, mut reported) = (None, None);
        let mut check = || {
            served.check(&files, &mut last, &mut reported, &entry);
            served.current()
        };
        assert!(check().is_none() && health.waiting()[0].contains("tls.crt"), "{:?}", health.waiting());
        let (one, two) = (pair(), pair());
        fs::write(&files.certificate, &one.0).unwrap();
        assert!(check().is_none() && health.waiting()[0].contains("tls.key"), "{:?}", health.waiting());
        fs::write(&files.key, &one.1).unwrap();
        let first = check().unwrap();
        assert_eq!(health.waiting(), Vec::<String>::new());
        assert!(Arc::ptr_eq(&first, &check().unwrap()), "nothing changed");
        // The files are written one after the other, as by hand. In between they do not match.
        fs::write(&files.certificate, &two.0).unwrap();
        assert!(Arc::ptr_eq(&first, &check().unwrap()) && health.waiting().is_empty());
        fs::write(&files.key, &two.1).unwrap();
        let second = check().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        for broken in ["", "hunter2"] {
            fs::write(&files.key, broken).unwrap();
            assert!(Arc::ptr_eq(&second, &check().unwrap()) && health.waiting().is_empty());
        }
        let with_clients = Files { client_ca: Some(dir.join("ca.crt")), ..files.clone() };
        fs::write(&files.key, &two.1).unwrap();
        assert!(Content::read(&with_clients).is_err());
        for (ca, good) in [("hunter2", false), (one.0.as_str(), true)] {
            fs::write(dir.join("ca.crt"), ca).unwrap();
            let config = Content::read(&with_clients).unwrap().config();
            assert_eq!(config.is_ok(), good);
            assert!(config.err().is_none_or(|why| !why.contains("hunter2")));
        }
        fs::remove_dir_all(dir).unwrap();
    }

    fn until(year: i32, month: u8, day: u8) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(1999, 1, 1), date_time_ymd(year, month, day));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn certificate_expiry_is_parsed_in_both_date_forms() {
        // Dates up to 2049 have a year of two digits, later ones of four.
        for ((year, month, day), seconds) in
            [((2049, 12, 31), 2_524_521_600), ((2050, 1, 1), 2_524_608_000), ((2026, 11, 22), 1_795_305_600)]
        {
            assert_eq!(expiry(&until(year, month, day)), Some(seconds), "{year}-{month}-{day}");
        }
        let chain = [until(2050, 1, 1), until(2026, 11, 22)];
        assert_eq!(expiry_of_chain(&chain), Some(1_795_305_600), "a chain expires with its first certificate");
        assert_eq!(expiry_of_chain(&[]), None);
    }

    #[test]
    fn certificate_garbage_has_no_expiry() {
        let whole = until(2026, 11, 22);
        for length in 0..whole.len() {
            // Cut at any length, the outermost length is wrong.
            assert_eq!(expiry(&whole[..length]), None, "{length} bytes of {}", whole.len());
        }
        for at in 0..whole.len() {
            let mut broken = whole.to_vec();
            broken[at] ^= 0xff;
            // Parsing must end, with any result.
            let _ = expiry(&broken);
        }
        assert_eq!(expiry_of_chain(&[whole, CertificateDer::from(vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff])]), None);
    }
}
