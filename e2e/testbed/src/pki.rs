//! Certificates, tokens and kubeconfigs of a testbed.

use std::{fs, path::Path};

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// The operator, with the rights that `config/` gives it and no more.
    Operator,
}

impl User {
    /// The roles of `config/` that the operator has where they are defined.
    pub(crate) const ROLES: [&str; 3] = ["compute", "compute-cell", "compute-manager"];

    /// Its bearer token.
    pub fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin-token",
            Self::Operator => "operator-token",
        }
    }

    /// Its name for the API servers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "system:serviceaccount:compute-system:compute-manager",
        }
    }

    /// Suffix of its kubeconfig files.
    fn suffix(self) -> &'static str {
        match self {
            Self::Admin => "",
            Self::Operator => ".operator",
        }
    }
}

/// Writes everything that API servers need to trust each other into `dir`.
pub fn make(dir: &Path) -> Result<()> {
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "testbed-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    fs::write(dir.join("ca.crt"), ca.self_signed(&key)?.pem())?;
    let ca = Issuer::new(ca, key);
    for name in ["server", "front-proxy"] {
        let names = ["127.0.0.1", "localhost", "*.karmada-system.svc", "*.karmada-system.svc.cluster.local"];
        let mut params = CertificateParams::new(names.map(String::from))?;
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &ca)?;
        fs::write(dir.join(format!("{name}.crt")), cert.pem())?;
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem())?;
    }
    let signer = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    fs::write(dir.join("sa.key"), signer.serialize_pem())?;
    fs::write(dir.join("sa.pub"), signer.public_key_pem())?;
    let admin = format!("{},{},1,\"system:masters\"", User::Admin.token(), User::Admin.name());
    let operator = format!(
        "{},{},2,\"system:serviceaccounts,system:serviceaccounts:compute-system\"",
        User::Operator.token(),
        User::Operator.name()
    );
    fs::write(dir.join("tokens.csv"), format!("{admin}\n{operator}\n"))?;
    fs::write(
        dir.join("audit.yaml"),
        json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [
                { "level": "Metadata", "users": [User::Operator.name()], "omitManagedFields": true },
                { "level": "None" },
            ],
        })
        .to_string(),
    )?;
    Ok(())
}

/// Writes the kubeconfig of `user` for the API server `name` on `port`, and returns where.
pub fn kubeconfig(dir: &Path, name: &str, port: u16, user: User) -> Result<std::path::PathBuf> {
    let path = dir.join(format!("{name}{}.kubeconfig", user.suffix()));
    let ca = STANDARD.encode(fs::read(dir.join("ca.crt"))?);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": name, "cluster": { "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": ca } }],
        "users": [{ "name": user.name(), "user": { "token": user.token() } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": user.name() } }],
    });
    fs::write(&path, serde_json::to_string_pretty(&config)?)?;
    Ok(path)
}
