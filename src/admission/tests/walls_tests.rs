//! Who is answered, when, and what is asked of management.

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::{crypto::aws_lc_rs, pki_types::PrivateKeyDer};

use super::*;
use crate::api::{names::CityCode, referenced::DataRef};

/// Who uses what is asked for the project and the namespace that a request is about.
#[tokio::test]
async fn what_another_city_has_is_refused_where_policies_claim() {
    let bed = bed(true).await;
    let shop = json!({ PARENT: ["shop"] });
    assert_eq!(bed.refused(VALIDATE_WORKLOAD, &creation("tls", "dfw", &shop)).await, Vec::<String>::new());
    bed.claimed.is_known_by(|project, namespace| {
        let used = InUse {
            deployment: "api-p-ord".into(),
            workload: "api".into(),
            city: CityCode::parse("ord").unwrap(),
            data: [DataRef::secret("tls")].into(),
        };
        (project.as_str() == "shop" && namespace == "team").then(|| vec![used])
    });
    let refused = bed.refused(VALIDATE_WORKLOAD, &creation("tls", "dfw", &shop)).await;
    let words = "Secret \"tls\" is used by Workload \"api\" in city ord";
    assert!(refused.len() == 1 && refused[0].contains(words), "{refused:?}");
    let mut elsewhere = creation("tls", "dfw", &shop);
    elsewhere["namespace"] = "other".into();
    elsewhere["object"]["metadata"]["namespace"] = "other".into();
    assert_eq!(bed.refused(VALIDATE_WORKLOAD, &elsewhere).await, Vec::<String>::new());
}

/// An authority, and the certificate and key of a client that it vouches for.
struct Authority {
    pem: String,
    client: CertificateDer<'static>,
    key: Vec<u8>,
}

/// All of them have the same name.
fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["api-server".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = params.signed_by(&key, &issuer).unwrap().der().clone();
    Authority { pem, client, key: key.serialize_der() }
}

impl Bed {
    /// The code of an answer to a question of a client that shows this certificate; 0 when there is none.
    async fn asked_by(&self, client: Option<&Authority>) -> u16 {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.dir.join("tls.crt")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => config.with_no_client_auth(),
            Some(Authority { client, key, .. }) => {
                let key = PrivateKeyDer::try_from(key.clone()).unwrap();
                config.with_client_auth_cert(vec![client.clone()], key).unwrap()
            }
        };
        let stream = TcpStream::connect(self.at).await.unwrap();
        let server = ServerName::try_from("localhost").unwrap();
        // A server learns who the client is after the client's own part of the handshake is done.
        let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(server, stream).await else { return 0 };
        let head = "GET /elsewhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(head.as_bytes()).await;
        answer(stream).await.0
    }
}

/// Found by reading: it was shown that a configuration can be made of an authority, and not that it turns anybody away.
#[tokio::test]
async fn with_an_authority_for_clients_nobody_else_is_answered() {
    let (own, other) = (authority(), authority());
    let walled = bed_with(false, Arc::default(), Some(&own.pem)).await;
    assert_eq!(walled.asked_by(None).await, 0, "a client without a certificate");
    assert_eq!(walled.asked_by(Some(&other)).await, 0, "one of another authority of the same name");
    assert_eq!(walled.asked_by(Some(&own)).await, 404, "one of this authority");
    assert_eq!(bed(false).await.asked_by(None).await, 404, "without an authority, anybody");
}

/// A pod that is not ready is asked by nobody, and then everything is refused. So readiness does not wait for the asked
/// project, nor for who this operator is there: what needs that is refused by itself, with its reason.
#[tokio::test]
async fn a_project_that_is_away_takes_no_readiness_and_refuses_only_what_needs_it() {
    let state = Arc::new(Project::default());
    state.away.store(true, Ordering::Relaxed);
    let bed = bed_with(false, state, None).await;
    let spoofed = json!({ annotation::EXPECTED_REFERENCED_DATA: "[\"Secret/db\"]" });
    let refused = bed.refused(VALIDATE_DEPLOYMENT, &deployment("operator", &spoofed)).await;
    assert!(refused.len() == 1 && refused[0].contains("Internal error"), "{refused:?}");
    assert!(bed.refused(VALIDATE_DEPLOYMENT, &deployment("ada", &json!({ "note": "x" }))).await.is_empty());
    assert_eq!(bed.health.waiting(), Vec::<String>::new(), "it is ready all the same");
    bed.project.away.store(false, Ordering::Relaxed);
    assert!(bed.refused(VALIDATE_DEPLOYMENT, &deployment("operator", &spoofed)).await.is_empty(), "and knows itself");
    let refused = bed.refused(VALIDATE_DEPLOYMENT, &deployment("ada", &spoofed)).await;
    assert!(refused.len() == 1 && refused[0].contains("Forbidden"), "{refused:?}");
}

/// Found by reading: the part by which a deployment is scaled was never asked about, and any number passed.
#[tokio::test]
async fn scaling_is_asked_about_and_reads_nothing() {
    let bed = bed(true).await;
    let scale = |replicas: Option<i32>| {
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "web-main-dfw", "namespace": "team" },
            "spec": { "replicas": replicas },
        })
    };
    let question = |new, old| {
        json!({
            "uid": "r-3", "operation": "UPDATE", "name": "web-main-dfw", "namespace": "team", "subResource": "scale",
            "kind": { "group": "autoscaling", "version": "v1", "kind": "Scale" },
            "userInfo": { "username": "ada" }, "object": scale(new), "oldObject": scale(old),
        })
    };
    for (new, old, refused) in [
        (Some(1000), None, false),
        (None, Some(3), false),
        (Some(4000), Some(5000), false),
        (Some(i32::MAX), Some(1), true),
    ] {
        let errors = bed.refused(VALIDATE_DEPLOYMENT, &question(new, old)).await;
        assert_eq!(errors.len(), usize::from(refused), "{errors:?}");
        assert!(errors.iter().all(|error| error.contains("spec.replicas: Invalid value")), "{errors:?}");
    }
    assert!(bed.project.reviews.lock().unwrap().is_empty());
}
