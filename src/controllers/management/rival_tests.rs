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
            queues::{CompanionKey, ProjectKey},
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
        let secret = companion.reconcile(&key, Now::read()).await;
        assert_eq!(secret.is_err(), touches, "the Secret of {name}: {secret:?}");
        for (deployment, what) in [("api", "deployment"), ("gone", "copy whose deployment is gone")] {
            let looked = federator.reconcile(&ProjectKey::new(&project, "web", deployment), Now::read()).await;
            assert_eq!(looked.is_err(), touches, "{what} of {name}: {looked:?}");
        }
        let secret_waits = touches || matches!(secret, Ok(Next::Await));
        assert!(secret_waits, "{secret:?}");
    }
}
