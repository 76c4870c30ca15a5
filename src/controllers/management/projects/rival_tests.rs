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
            Context,
            fixtures::{deployment, namespace, project, unreachable},
            wiring::queues::{CompanionKey, ProjectKey},
        },
    },
    io::clock::Now,
    plan::Next,
};

/// Returns two projects with a namespace of the same uid. The hub namespace names the first, and has copies of `api` and `gone`.
fn ctx() -> Arc<Context> {
    let ctx = Context::of_tests();
    let (plane, projects) = (ControlPlane::new("discovery", unreachable()), Arc::new(Store::new(|_, _| Vec::new())));
    projects.replace(Vec::new(), 1);
    ctx.projects.discover(Discovered { plane, kind: Kind::Namespace, projects });
    for name in ["shop", "shop-restored"] {
        ctx.projects.insert(project(name));
    }
    let hub = &ctx.hub;
    let named = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
    hub.namespaces.replace(vec![namespace("ns-u", "h", &named)], 1);
    hub.copies.replace(vec![deployment("ns-u", "api"), deployment("ns-u", "gone")], 1);
    hub.policies.replace(Vec::new(), 1);
    hub.bindings.replace(Vec::new(), 1);
    hub.clusters.replace(Vec::new(), 1);
    for kind in SourceKind::ALL {
        hub.companions(kind).replace(Vec::new(), 1);
    }
    ctx
}

/// After one project's control plane was restored as another project's, each used the other's objects on the hub as its own,
/// including Secrets.
#[tokio::test]
async fn rival_does_not_write_in_hub_namespace_of_another_project() {
    let ctx = ctx();
    let watches = Arc::new(ctx.watches(&CancellationToken::new()));
    let (companion, federator) = (ctx.companion(&watches), ctx.federator());
    for (name, touches) in [("shop", true), ("shop-restored", false)] {
        let project = ProjectName::new(name);
        let key = CompanionKey { project: project.clone(), namespace: "web".into(), data_ref: DataRef::secret("db") };
        let secret = companion.reconcile(&key, Now::read(), Duration::ZERO).await;
        assert_eq!(secret.is_err(), touches, "the Secret of {name}: {secret:?}");
        for (deployment, what) in [("api", "deployment"), ("gone", "copy whose deployment is gone")] {
            let result =
                federator.reconcile(&ProjectKey::new(&project, "web", deployment), Now::read(), Duration::ZERO).await;
            // Its own project may get its first status.
            let is_status =
                format!("{result:?}").contains(&format!("apply status of WorkloadDeployment web/api in {name}"));
            assert_eq!(result.is_err() && !is_status, touches, "{what} of {name}: {result:?}");
        }
        let secret_waits = touches || matches!(secret, Ok(Next::Await));
        assert!(secret_waits, "{secret:?}");
    }
}

/// While a project was briefly not found, its rival took over the hub namespace with its running deployments. There was neither a
/// grace period nor a live read.
#[tokio::test]
async fn rival_of_seemingly_absent_project_does_not_take_its_hub_namespace() {
    let ctx = ctx();
    let (shop, other) = (ProjectName::new("shop"), ProjectName::new("shop-restored"));
    let is_refused = || {
        let facts = ctx.hub.namespaces.get(&ObjectKey::new("", "ns-u"));
        ctx.projects.rival(&other, "ns-u", facts.as_deref(), &ctx.hub)
    };
    assert_eq!(is_refused(), Some(Rival::Lives));
    ctx.projects.remove(&shop);
    assert!(matches!(ctx.projects.existence(&shop), Existence::Absent(_)), "as far as discovery knows");
    assert_eq!(is_refused(), Some(Rival::Possible));
    let result = ctx.federator().reconcile(&ProjectKey::new(&other, "web", "gone"), Now::read(), Duration::ZERO).await;
    assert!(result.is_ok(), "the other's copy is not deleted: {result:?}");
    // The hub namespace is free once nothing of the project is left.
    ctx.hub.copies.replace(Vec::new(), 2);
    assert_eq!(is_refused(), None);
}

/// Rivals were kept until the process ended, even after the project or the hub namespace was gone.
#[tokio::test]
async fn rival_of_deleted_project_or_hub_namespace_is_forgotten() {
    let ctx = ctx();
    let (projects, shop) = (&ctx.projects, ProjectName::new("shop"));
    let known = || projects.rivals().len();
    for name in ["shop", "shop-restored"] {
        projects.note_rival(&ProjectName::new(name), "ns-u");
        projects.note_rival(&ProjectName::new(name), "ns-gone");
    }
    assert_eq!(known(), 4);
    ctx.collector().forget_gone();
    assert_eq!(known(), 2, "at the existing namespace");
    projects.remove(&shop);
    assert_eq!(known(), 1, "of the existing project");
}
