//! Certificates, tokens and kubeconfigs of a testbed.

use std::{borrow::Cow, fs, path::Path};

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;

/// Users of the API servers. All except the first have exactly the rights of `config/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A user with every right.
    Admin,
    /// The operator in its own clusters: as management on projects and the hub, and as cell controllers on a cell.
    Operator,
    /// The cells in projects, which claim quota there.
    Quota,
    /// The cell of this city, on the hub.
    Cell(String),
    /// A tenant, with the rights that a test or the demo grants in a project.
    Tenant,
}

impl User {
    /// Returns its bearer token.
    pub fn token(&self) -> Cow<'static, str> {
        match self {
            Self::Admin => "admin-token".into(),
            Self::Operator => "operator-token".into(),
            Self::Quota => "quota-token".into(),
            Self::Cell(city) => format!("cell-{city}-token").into(),
            Self::Tenant => "tenant-token".into(),
        }
    }

    /// Returns its user name.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Admin => "admin".into(),
            Self::Operator => "system:serviceaccount:compute-system:compute-manager".into(),
            Self::Quota => "system:serviceaccount:compute-system:compute-quota".into(),
            Self::Cell(city) => format!("system:serviceaccount:compute-system:compute-cell-{city}").into(),
            Self::Tenant => "ada".into(),
        }
    }

    /// Returns the suffix of its kubeconfig files.
    pub(crate) fn suffix(&self) -> String {
        match self {
            Self::Admin => String::new(),
            Self::Operator => ".operator".into(),
            Self::Quota => ".quota".into(),
            Self::Cell(city) => format!(".cell-{city}"),
            Self::Tenant => ".tenant".into(),
        }
    }

    /// Returns all users of a testbed with cells in these cities.
    fn all(cities: &[String]) -> Vec<Self> {
        let cells = cities.iter().cloned().map(Self::Cell);
        [Self::Admin, Self::Tenant, Self::Operator, Self::Quota].into_iter().chain(cells).collect()
    }

    /// Returns its groups, without the group of all authenticated users.
    pub(crate) fn groups(&self) -> &'static [&'static str] {
        match self {
            Self::Admin => &["system:masters"],
            Self::Tenant => &["tenants"],
            _ => &["system:serviceaccounts", "system:serviceaccounts:compute-system"],
        }
    }

    /// Returns its line in the token file.
    fn line(&self, uid: usize) -> String {
        format!("{},{},{uid},\"{}\"\n", self.token(), self.name(), self.groups().join(","))
    }
}

/// Writes certificates, keys and tokens of the API servers, and users of the cells in these cities, into `dir`.
pub fn make(dir: &Path, cities: &[String]) -> Result<()> {
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
    let users = User::all(cities);
    let lines: String = users.iter().enumerate().map(|(n, user)| user.line(n)).collect();
    fs::write(dir.join("tokens.csv"), lines)?;
    let ours: Vec<_> =
        users.iter().filter(|user| !matches!(user, User::Admin | User::Tenant)).map(User::name).collect();
    fs::write(
        dir.join("audit.yaml"),
        json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [
                { "level": "Metadata", "users": ours, "omitManagedFields": true },
                { "level": "None" },
            ],
        })
        .to_string(),
    )?;
    Ok(())
}

/// Writes the kubeconfig of `user` for the API server `name` on `port`. Returns its path.
pub fn kubeconfig(dir: &Path, name: &str, port: u16, user: &User) -> Result<std::path::PathBuf> {
    kubeconfig_of(dir, name, &format!("https://127.0.0.1:{port}"), user)
}

/// Writes a kubeconfig for an API server at this address. Returns its path.
pub fn kubeconfig_of(dir: &Path, name: &str, address: &str, user: &User) -> Result<std::path::PathBuf> {
    let path = dir.join(format!("{name}{}.kubeconfig", user.suffix()));
    let ca = STANDARD.encode(fs::read(dir.join("ca.crt"))?);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": name, "cluster": { "server": address, "certificate-authority-data": ca } }],
        "users": [{ "name": user.name(), "user": { "token": user.token() } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": user.name() } }],
    });
    fs::write(&path, serde_json::to_string_pretty(&config)?)?;
    Ok(path)
}
