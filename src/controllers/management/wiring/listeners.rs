//! Has the triggers hear of every change in the caches, for as long as they live.

use std::sync::{Arc, Weak};

use crate::controllers::management::{projects::project_cache::ProjectCache, wiring::triggers::Triggers};
use crate::{
    api::{
        compute::WorkloadDeployment,
        referenced::{DataRef, SourceKind},
    },
    controllers::{compact::PackedDeployment, delta, with},
    io::store::Change,
    plan::{
        Delta,
        management::triggers::{HubChange, ProjectChange},
    },
};

impl Triggers {
    /// Hears of every change on the hub.
    pub(crate) fn listen_to_hub(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.hub.copies.listen(move |c| opened(c, |copy| with(&weak, |this| this.after_hub(&HubChange::Copy(copy)))));
        let weak = Arc::downgrade(self);
        self.hub.policies.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Policy(delta(c)))));
        let weak = Arc::downgrade(self);
        self.hub.namespaces.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Namespace(delta(c)))));
        let weak = Arc::downgrade(self);
        self.hub.instances.listen(move |c| {
            let Delta { namespace, name, old, new } = delta(c);
            let (old, new) = (old.map(|old| &**old), new.map(|new| &**new));
            with(&weak, |this| this.after_hub(&HubChange::Instance(Delta { namespace, name, old, new })));
        });
        for kind in SourceKind::ALL {
            let weak = Arc::downgrade(self);
            let after = move |c: &Change<'_, _>| {
                with(&weak, |this| this.after_hub(&HubChange::Companion(kind, delta(c))));
            };
            self.hub.companions(kind).listen(after);
        }
        let weak = Arc::downgrade(self);
        self.hub.bindings.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Binding(delta(c)))));
        let weak = Arc::downgrade(self);
        self.hub.clusters.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Cluster(delta(c)))));
        let weak = Arc::downgrade(self);
        self.hub.copies.listen_readable(move |namespace| {
            with(&weak, |this| this.after_hub(&HubChange::CopiesReadable(namespace)));
        });
        let weak = Arc::downgrade(self);
        self.hub.bindings.listen_readable(move |namespace| {
            with(&weak, |this| this.after_hub(&HubChange::BindingsReadable(namespace)));
        });
        let weak = Arc::downgrade(self);
        self.hub.clusters.listen_readable(move |_| with(&weak, |this| this.after_hub(&HubChange::ClustersReadable)));
        let weak = Arc::downgrade(self);
        self.hub.instances.listen_readable(move |namespace| {
            with(&weak, |this| this.after_hub(&HubChange::InstancesReadable(namespace)));
        });
    }

    /// Hears of every change in a project.
    pub(crate) fn listen_to_project(self: &Arc<Self>, project: &Arc<ProjectCache>) {
        let both = || (Arc::downgrade(self), Arc::downgrade(project));
        let (weak, of) = both();
        project.workloads.listen(move |c| {
            let change = ProjectChange::Workload(&c.key.namespace, &c.key.name);
            with_both(&weak, &of, |this, project| this.after_project(project, &change));
        });
        let (weak, of) = both();
        project.deployments.listen(move |c| {
            opened(c, |deployment| {
                let change = ProjectChange::Deployment(deployment);
                with_both(&weak, &of, |this, project| this.after_project(project, &change));
            });
        });
        let (weak, of) = both();
        project.deployments.listen_readable(move |namespace| {
            let change = ProjectChange::DeploymentsReadable(namespace);
            with_both(&weak, &of, |this, project| this.after_project(project, &change));
        });
        let (weak, of) = both();
        project.locations.listen(move |c| {
            with_both(&weak, &of, |this, project| this.after_project(project, &ProjectChange::Location(delta(c))));
        });
        let (weak, of) = both();
        project.namespaces.listen(move |c| {
            with_both(&weak, &of, |this, project| this.after_project(project, &ProjectChange::Namespace(delta(c))));
        });
        let (weak, of) = both();
        project.instances.listen(move |c| {
            let change = ProjectChange::Projection(&c.key.namespace, &c.key.name);
            with_both(&weak, &of, |this, project| this.after_project(project, &change));
        });
        for kind in SourceKind::ALL {
            let (weak, of) = both();
            project.sources(kind).listen(move |source| {
                let change = ProjectChange::Source(&source.namespace, DataRef { kind, name: source.name.to_string() });
                with_both(&weak, &of, |this, project| this.after_project(project, &change));
            });
        }
        if let Some(networks) = &project.networks {
            let (weak, of) = both();
            networks.listen(move |c| {
                with_both(&weak, &of, |this, project| this.after_project(project, &ProjectChange::Network(delta(c))));
            });
        }
    }
}

/// Has `act` see the deployments of a change.
fn opened(change: &Change<'_, PackedDeployment>, act: impl FnOnce(Delta<'_, WorkloadDeployment>)) {
    let Delta { namespace, name, old, new } = delta(change);
    let (old, new) = (old.map(PackedDeployment::open), new.map(PackedDeployment::open));
    act(Delta { namespace, name, old: old.as_ref(), new: new.as_ref() });
}

/// Runs `act` while both live.
fn with_both<T, U>(one: &Weak<T>, two: &Weak<U>, act: impl FnOnce(&T, &U)) {
    if let (Some(one), Some(two)) = (one.upgrade(), two.upgrade()) {
        act(&one, &two);
    }
}
