use std::{fs, path::Path};

use kube::Config;

use super::*;

#[test]
fn project_address_depends_on_name_and_domain() {
    let template = Config::new("https://milo.example:6443/ignored".parse().unwrap());
    let address = |internal: bool, name| {
        let domain = internal.then_some("cluster.local");
        Projects::new(template.clone()).inside(domain).address(&ProjectName::new(name))
    };
    assert_eq!(
        address(false, "shop").unwrap(),
        "https://milo.example:6443/apis/resourcemanager.miloapis.com/v1alpha1/projects/shop/control-plane"
    );
    assert_eq!(address(true, "shop").unwrap(), "https://milo-apiserver.project-shop.svc.cluster.local:6443");
    // The cluster domain could not be configured, so projects on other domains had no address.
    let elsewhere = Projects::new(template.clone()).inside(Some("example.internal"));
    assert_eq!(
        elsewhere.address(&ProjectName::new("shop")).unwrap(),
        "https://milo-apiserver.project-shop.svc.example.internal:6443"
    );
    assert!(address(true, "shop.other").unwrap_err().contains("names with a dot"), "it would be in namespace other");
    assert!(address(false, "shop.other").is_ok());
    for bad in ["", "a/b", "..", "a?b", "A"] {
        assert!(address(false, bad).is_err() && address(true, bad).is_err(), "{bad}");
    }
    // This is the Service of another namespace, whose owner would receive the project's credentials.
    assert!(address(false, "a.b").is_ok() && address(true, "a.b").is_err());
}

/// Compares with what `e2e/kind/up` creates in each cell.
#[test]
fn project_service_of_kind_setup_has_the_address_that_cells_use() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/kind/project-in-cell.yaml");
    let text = fs::read_to_string(file).unwrap();
    let object = |kind: &str| text.split("---\n").find(|one| one.contains(&format!("kind: {kind}\n"))).unwrap();
    let field = |kind: &str, key: &str| {
        let value = object(kind).lines().find_map(|line| line.trim_start_matches(['-', ' ']).strip_prefix(key));
        value.unwrap_or_else(|| panic!("{kind} has no {key}")).trim().to_owned()
    };
    let projects = Projects::new(Config::new("https://172.18.0.2:6443".parse().unwrap())).inside(Some("cluster.local"));
    let at = format!(
        "https://{}.{}.svc.cluster.local:{}",
        field("Service", "name:"),
        field("Service", "namespace:"),
        field("EndpointSlice", "port:")
    );
    assert_eq!(projects.address(&ProjectName::single()).unwrap(), at.as_str());
}
