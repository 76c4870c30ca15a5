//! Until when a certificate is good. Nothing is verified.

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Until when all certificates of a chain are good, in seconds since 1970; nothing where one cannot be read.
pub fn of_chain(chain: &[CertificateDer<'_>]) -> Option<i64> {
    chain.iter().map(|certificate| not_after(certificate)).collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Until when a certificate is good, in seconds since 1970.
fn not_after(der: &[u8]) -> Option<i64> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then(|| certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

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
            assert_eq!(not_after(&until(year, month, day)), Some(seconds), "{year}-{month}-{day}");
        }
        let chain = [until(2050, 1, 1), until(2026, 11, 22)];
        assert_eq!(of_chain(&chain), Some(1_795_305_600), "a chain is as good as its first to end");
        assert_eq!(of_chain(&[]), None);
    }

    #[test]
    fn what_is_no_certificate_ends_never_and_breaks_nothing() {
        let whole = until(2026, 11, 22);
        for length in 0..whole.len() {
            // Cut anywhere, the outermost length is wrong.
            assert_eq!(not_after(&whole[..length]), None, "{length} bytes of {}", whole.len());
        }
        for at in 0..whole.len() {
            let mut broken = whole.to_vec();
            broken[at] ^= 0xff;
            // Whatever comes of it: it comes to an end.
            let _ = not_after(&broken);
        }
        assert_eq!(of_chain(&[whole, CertificateDer::from(vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff])]), None);
    }
}
