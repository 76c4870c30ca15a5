use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    api::{
        meta::label,
        referenced::{DataRef, SourceKind},
    },
    controllers::{
        Reconciler,
        management::{
            Options, Parts,
            fixtures::{deployment, namespace, nobody, project},
            wiring::queues::{CompanionKey, ProjectKey},
        },
    },
    io::{clock::Now, health::Health},
    metrics::Metrics,
    plan::Next,
};

/// Two projects with a namespace of one uid, and a hub namespace that names the first, with copies of `api` and of `gone`.
fn parts() -> Parts {
    let parts = Parts::new(nobody(), Options::of_tests(), Health::default(), Metrics::default());
    let (plane, projects) = (ControlPlane::new("discovery", nobody()), Arc::new(Store::new(|_, _| Vec::new())));
    projects.replace(Vec::new(), 1);
    parts.projects.discover(Discovered { plane, kind: Kind::Namespace, projects });
    for name in ["shop", "shop-restored"] {
        parts.projects.insert(project(name));
    }
    let hub = &parts.hub;
    let named = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
    hub.namespaces.replace(vec![namespace("ns-u", "h", &named)], 1);
    hub.copies.replace(vec![deployment("ns-u", "api"), deployment("ns-u", "gone")], 1);
    hub.policies.replace(Vec::new(), 1);
    hub.bindings.replace(Vec::new(), 1);
    hub.clusters.replace(Vec::new(), 1);
    for kind in SourceKind::ALL {
        hub.companions(kind).replace(Vec::new(), 1);
    }
    parts
}

/// Found by reading: where one project's control plane was restored as another's, each took what the other had on the hub
/// for its own, Secrets included.
#[tokio::test]
async fn what_is_on_the_hub_is_touched_for_the_project_alone_that_it_names() {
    let parts = parts();
    let watches = Arc::new(parts.watches(&CancellationToken::new()));
    let (companion, federator) = (parts.companion(&watches), parts.federator());
    for (name, touches) in [("shop", true), ("shop-restored", false)] {
        let project = ProjectName::new(name);
        let key = CompanionKey { project: project.clone(), namespace: "web".into(), data_ref: DataRef::secret("db") };
        let secret = companion.reconcile(&key, Now::read(), Duration::ZERO).await;
        assert_eq!(secret.is_err(), touches, "the Secret of {name}: {secret:?}");
        for (deployment, what) in [("api", "deployment"), ("gone", "copy whose deployment is gone")] {
            let looked =
                federator.reconcile(&ProjectKey::new(&project, "web", deployment), Now::read(), Duration::ZERO).await;
            assert_eq!(looked.is_err(), touches, "{what} of {name}: {looked:?}");
        }
        let secret_waits = touches || matches!(secret, Ok(Next::Await));
        assert!(secret_waits, "{secret:?}");
    }
}

/// Found by reading: for a moment in which a project was not to be found, its rival took its hub namespace and all that ran
/// there, with no grace and no live read.
#[tokio::test]
async fn what_runs_there_is_nobody_elses_because_a_project_seems_to_be_gone() {
    let parts = parts();
    let (shop, other) = (ProjectName::new("shop"), ProjectName::new("shop-restored"));
    let is_refused = || {
        let facts = parts.hub.namespaces.get(&ObjectKey::new("", "ns-u"));
        parts.projects.rival(&other, "ns-u", facts.as_deref(), &parts.hub)
    };
    assert_eq!(is_refused(), Some(Rival::Lives));
    parts.projects.remove(&shop);
    assert!(matches!(parts.projects.existence(&shop), Existence::Absent(_)), "as far as discovery knows");
    assert_eq!(is_refused(), Some(Rival::Possible));
    let looked =
        parts.federator().reconcile(&ProjectKey::new(&other, "web", "gone"), Now::read(), Duration::ZERO).await;
    assert!(looked.is_ok(), "nobody is asked to delete the other's copy: {looked:?}");
    // Once nothing of it is left, the namespace is free.
    parts.hub.copies.replace(Vec::new(), 2);
    assert_eq!(is_refused(), None);
}

/// Found by reading: rivals were remembered for as long as the process, whoever of them went.
#[tokio::test]
async fn a_rival_is_told_of_anew_once_its_project_or_its_hub_namespace_has_gone() {
    let parts = parts();
    let (projects, shop) = (&parts.projects, ProjectName::new("shop"));
    let known = || projects.rivals().len();
    for name in ["shop", "shop-restored"] {
        projects.note_rival(&ProjectName::new(name), "ns-u");
        projects.note_rival(&ProjectName::new(name), "ns-gone");
    }
    assert_eq!(known(), 4);
    parts.collector().forget_gone();
    assert_eq!(known(), 2, "at the namespace that is there");
    projects.remove(&shop);
    assert_eq!(known(), 1, "of the project that is there");
}
