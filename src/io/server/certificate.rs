//! The serving certificate, read anew when its files change.

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

/// Period in which the files are compared with what was read. They are small, and kubelet swaps them as a whole.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Paths of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The chain, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// The authorities whose clients alone may connect. Without it, any client may.
    pub client_ca: Option<PathBuf>,
}

/// The certificate to serve with, which may change at any time.
#[derive(Clone, Default)]
pub struct Certificate {
    current: Arc<RwLock<Option<Arc<ServerConfig>>>>,
    told: Option<(&'static str, Metrics)>,
}

impl Certificate {
    /// None yet. The expiry of the certificate that is read is reported in metrics under this name.
    pub fn counted(name: &'static str, metrics: &Metrics) -> Self {
        Self { told: Some((name, metrics.clone())), ..Self::default() }
    }

    /// A certificate made now, which no authority has signed. It protects against eavesdropping, not against a server that
    /// answers in this one's place.
    ///
    /// # Errors
    /// One line when it cannot be made.
    pub fn self_signed(self, names: &[&str]) -> Result<Self, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| format!("cannot make a certificate: {e}"))?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(str::to_owned)?;
        let chain = vec![made.cert.der().clone()];
        self.tell(&chain);
        self.serve(served_with(chain, key, None)?);
        Ok(self)
    }

    fn serve(&self, config: ServerConfig) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(config));
    }

    fn tell(&self, chain: &[CertificateDer<'_>]) {
        if let Some(((name, metrics), until)) = self.told.as_ref().zip(expiry_of_chain(chain)) {
            metrics.certificate(name, until);
        }
    }

    /// The TLS configuration for new connections. `None` while no certificate could be read.
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files, and again whenever they change, until `stop`. If the new files cannot be used, the last certificate
    /// stays in use.
    pub async fn keep(self, files: Files, entry: Entry, stop: CancellationToken) {
        let (mut last, mut told) = (None, None);
        loop {
            self.look(&files, &mut last, &mut told, &entry);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// `last`: the content that is served. `told`: the last reported problem with the present files.
    fn look(&self, files: &Files, last: &mut Option<Content>, told: &mut Option<String>, entry: &Entry) {
        entry.trying();
        let read = Content::read(files);
        if read.as_ref().ok() == last.as_ref() && last.is_some() {
            return;
        }
        match read.and_then(|content| Ok((content.config()?, content))) {
            Ok((config, content)) => {
                self.tell(&certificates(&content.certificate).unwrap_or_default());
                self.serve(config);
                (*last, *told) = (Some(content), None);
                entry.synced();
                tracing::info!(certificate = %files.certificate.display(), "serving certificate read");
            }
            // The last certificate still works: report the problem, and go on serving.
            Err(why) if last.is_some() => {
                if told.as_ref() != Some(&why) {
                    tracing::warn!(why, "serving certificate changed and cannot be used: the last one stays");
                    *told = Some(why);
                }
                entry.synced();
            }
            Err(why) => {
                if entry.failed(&why) {
                    let meanwhile = if self.current().is_some() {
                        "one that was made at the start is served"
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

    /// Makes the TLS configuration. Errors name the problem, and nothing of a key.
    fn config(&self) -> Result<ServerConfig, String> {
        let chain = certificates(&self.certificate).map_err(|()| "the certificate is no PEM".to_owned())?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| "the private key is no PEM".to_owned())?;
        served_with(chain, key, self.client_ca.as_deref())
    }
}

/// A server's side of TLS; with authorities, for their clients alone.
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
            for root in certificates(text).map_err(|()| "the clients' authority is no PEM".to_owned())? {
                roots.add(root).map_err(|e| format!("the clients' authority: {e}"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|e| format!("the clients' authority: {e}"))?)
        }
    };
    // It says so when the key is another certificate's.
    let mut config = builder.with_single_cert(chain, key).map_err(|e| format!("the certificate: {e}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, ()> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(drop)?;
    if all.is_empty() { Err(()) } else { Ok(all) }
}

/// The first expiry of a chain's certificates, in seconds since 1970; `None` if one cannot be read. Nothing is verified.
pub fn expiry_of_chain(chain: &[CertificateDer<'_>]) -> Option<i64> {
    chain.iter().map(|certificate| expiry(certificate)).collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// The expiry of a certificate, in seconds since 1970.
fn expiry(der: &[u8]) -> Option<i64> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then(|| certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::io::health::Health;

    /// A certificate for `localhost`, and its key.
    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    /// As the Go operator's, metrics are served before somebody has put the files there.
    #[test]
    fn one_that_was_made_at_the_start_is_served_until_the_files_are_there() {
        let dir = std::env::temp_dir().join(format!("serving-{:016x}", fastrand::u64(..)));
        fs::create_dir(&dir).unwrap();
        let files = Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), client_ca: None };
        let served = Certificate::default().self_signed(&["localhost"]).unwrap();
        let health = Health::default();
        let entry = health.tenant_watch("serving certificate".into());
        let (made, mut last, mut told) = (served.current().unwrap(), None, None);
        served.look(&files, &mut last, &mut told, &entry);
        assert!(Arc::ptr_eq(&made, &served.current().unwrap()));
        assert!(health.noted()[0].contains("tls.crt"), "and it is told what is missing: {:?}", health.noted());
        let (certificate, key) = pair();
        fs::write(&files.certificate, certificate).unwrap();
        fs::write(&files.key, key).unwrap();
        served.look(&files, &mut last, &mut told, &entry);
        assert!(!Arc::ptr_eq(&made, &served.current().unwrap()) && health.noted().is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_last_certificate_that_can_be_used_is_served() {
        let dir = std::env::temp_dir().join(format!("serving-{:016x}", fastrand::u64(..)));
        fs::create_dir(&dir).unwrap();
        let files = Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), client_ca: None };
        let (health, served) = (Health::default(), Certificate::default());
        let entry = health.watch("serving certificate".into());
        let (mut last, mut told) = (None, None);
        let mut look = || {
            served.look(&files, &mut last, &mut told, &entry);
            served.current()
        };
        assert!(look().is_none() && health.waiting()[0].contains("tls.crt"), "{:?}", health.waiting());
        let (one, two) = (pair(), pair());
        fs::write(&files.certificate, &one.0).unwrap();
        assert!(look().is_none() && health.waiting()[0].contains("tls.key"), "{:?}", health.waiting());
        fs::write(&files.key, &one.1).unwrap();
        let first = look().unwrap();
        assert_eq!(health.waiting(), Vec::<String>::new());
        assert!(Arc::ptr_eq(&first, &look().unwrap()), "nothing changed");
        // Written one after the other, as by hand: in between they do not fit.
        fs::write(&files.certificate, &two.0).unwrap();
        assert!(Arc::ptr_eq(&first, &look().unwrap()) && health.waiting().is_empty());
        fs::write(&files.key, &two.1).unwrap();
        let second = look().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        for broken in ["", "hunter2"] {
            fs::write(&files.key, broken).unwrap();
            assert!(Arc::ptr_eq(&second, &look().unwrap()) && health.waiting().is_empty());
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
    fn the_end_of_a_certificate_is_read_in_both_forms() {
        // Up to 2049 with two digits of the year, from then on with four.
        for ((year, month, day), seconds) in
            [((2049, 12, 31), 2_524_521_600), ((2050, 1, 1), 2_524_608_000), ((2026, 11, 22), 1_795_305_600)]
        {
            assert_eq!(expiry(&until(year, month, day)), Some(seconds), "{year}-{month}-{day}");
        }
        let chain = [until(2050, 1, 1), until(2026, 11, 22)];
        assert_eq!(expiry_of_chain(&chain), Some(1_795_305_600), "a chain is as good as its first to end");
        assert_eq!(expiry_of_chain(&[]), None);
    }

    #[test]
    fn what_is_no_certificate_ends_never_and_breaks_nothing() {
        let whole = until(2026, 11, 22);
        for length in 0..whole.len() {
            // Cut anywhere, the outermost length is wrong.
            assert_eq!(expiry(&whole[..length]), None, "{length} bytes of {}", whole.len());
        }
        for at in 0..whole.len() {
            let mut broken = whole.to_vec();
            broken[at] ^= 0xff;
            // Whatever comes of it: it comes to an end.
            let _ = expiry(&broken);
        }
        assert_eq!(expiry_of_chain(&[whole, CertificateDer::from(vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff])]), None);
    }
}
