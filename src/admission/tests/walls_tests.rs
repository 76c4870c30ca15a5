//! Client certificates, readiness, and the facts asked of management.

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::{crypto::aws_lc_rs, pki_types::PrivateKeyDer};

use super::*;
use crate::api::{names::CityCode, referenced::DataRef};

/// Management is asked for the project and the namespace of the request.
#[tokio::test]
async fn data_of_another_city_under_claiming_policies_is_refused() {
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

/// A CA, and a client's certificate and key signed by it.
struct Authority {
    pem: String,
    client: CertificateDer<'static>,
    key: Vec<u8>,
}

/// Makes a CA. All of them have the same name.
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
    /// Returns the status code for a client with this certificate; 0 if there is no response.
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
        // A server verifies the client after the client's own part of the handshake.
        let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(server, stream).await else { return 0 };
        let head = "GET /elsewhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(head.as_bytes()).await;
        answer(stream).await.0
    }
}

/// No test showed that a configured client CA turns other clients away.
#[tokio::test]
async fn client_without_certificate_of_the_configured_ca_is_cut() {
    let (own, other) = (authority(), authority());
    let walled = bed_with(false, Arc::default(), Some(&own.pem)).await;
    assert_eq!(walled.asked_by(None).await, 0, "a client without a certificate");
    assert_eq!(walled.asked_by(Some(&other)).await, 0, "one of another authority of the same name");
    assert_eq!(walled.asked_by(Some(&own)).await, 404, "one of this authority");
    assert_eq!(bed(false).await.asked_by(None).await, 404, "without an authority, anybody");
}

/// No API server asks a pod that is not ready, and then every request is refused. So readiness does not wait for the project or
/// for the operator's identity there. Only requests that need them are refused, with the reason.
#[tokio::test]
async fn unreachable_project_keeps_readiness_and_refuses_only_its_requests() {
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

/// The scale subresource was never validated, so any number of replicas passed.
#[tokio::test]
async fn scale_request_is_validated_without_reviews() {
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
