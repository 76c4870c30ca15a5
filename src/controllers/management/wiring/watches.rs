//! The watches of the management controllers: of the hub, of each engaged project, and of its ConfigMaps and Secrets once they
//! are referenced.

use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use tokio_util::sync::CancellationToken;

use crate::controllers::management::{
    Context, federator::blocked, projects::project_cache::ProjectCache, wiring::triggers::Triggers,
};
use crate::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        karmada::{Cluster, PropagationPolicy, ResourceBinding},
        meta::label,
        names::ProjectName,
        neighbours::{LocationBinding, Network},
        referenced::SourceKind,
    },
    controllers::{
        Watches,
        compact::{self, PackedDeployment, PackedInstance, PackedWorkload},
        namespace_facts, with,
    },
    io::{
        clients::ControlPlane,
        clock::Now,
        feed::Feed,
        watch::{Metadata, PAGE_SIZE},
    },
    plan::{
        self, Kind, Plane,
        management::observed::{cluster::ClusterFacts, facts::CompanionFacts},
    },
};

/// Objects per page of a list of which nearly all objects are skipped.
const SOURCES_PAGE_SIZE: u32 = 100;

/// Starts and stops watches. They fill the caches, which notify the triggers.
pub(crate) struct ManagementWatches {
    pub(crate) ctx: Arc<Context>,
    pub(crate) stop: CancellationToken,
}

impl ManagementWatches {
    /// Watches the hub.
    pub(crate) fn start_hub(&self) {
        self.ctx.triggers.listen_to_hub();
        let (hub, metrics) = (Arc::downgrade(&self.ctx.hub), self.ctx.metrics.clone());
        let triggers = Arc::downgrade(&self.ctx.triggers);
        let on_fresh = move || {
            with(&hub, |hub| hub.count_phases(&metrics));
            with(&triggers, |triggers| triggers.everything_again());
        };
        let hub = &self.ctx.hub;
        let timing = self.ctx.options.timing.hub_watches();
        let watches = Watches { timing, ..self.watches(&hub.plane, &self.stop, false, on_fresh) };
        let scope = label::UPSTREAM_NAMESPACE;
        watches.written::<WorkloadDeployment, _>(scope, PackedDeployment::of, &hub.copies);
        // No selector: policies of the Go operator carry no label of ours, and are adopted.
        watches.written::<PropagationPolicy, _>("", |p| p, &hub.policies);
        let mirrors = label::UPSTREAM_CLUSTER;
        watches.start::<PartialObjectMeta<Namespace>, _>(mirrors, namespace_facts, &hub.namespaces);
        let (keep, store) = (namespace_facts, hub.namespaces.clone());
        let feed = Feed::<PartialObjectMeta<Namespace>, _, _> { keep, about: |_| true, store };
        hub.plane.feed(Kind::Namespace, Arc::new(feed));
        let companions = format!("{}=true", label::REFERENCED_DATA);
        let facts = |of: Metadata| CompanionFacts::of(&of.metadata);
        for kind in SourceKind::ALL {
            let store = hub.companions(kind);
            watches.metadata(kind.into(), &companions, PAGE_SIZE, facts, store.clone());
            let feed = Feed::<Metadata, _, _> { keep: facts, about: |_| true, store: store.clone() };
            hub.plane.feed(kind.into(), Arc::new(feed));
        }
        watches.objects::<ResourceBinding, _>("", compact::binding, &hub.bindings);
        watches.objects::<Cluster, _>("", ClusterFacts::of, &hub.clusters);
        // No selector: an Instance without its labels is reported.
        watches.written::<Instance, _>("", PackedInstance::of_hub, &hub.instances);
    }

    /// Engages a project: its objects are reconciled from now on. `uid`: the uid of the project, if it is one of many.
    pub(crate) fn engage(&self, name: &ProjectName, plane: ControlPlane<plan::Project>, uid: Option<&str>) {
        let networks = self.ctx.options.networks;
        let project = Arc::new(ProjectCache::new(name, plane, networks, uid, self.stop.child_token()));
        self.ctx.triggers.listen_to_project(&project);
        if let Some(before) = self.ctx.projects.insert(project.clone()) {
            before.stop.cancel();
        }
        self.ctx.metrics.projects(self.ctx.projects.all().len());
        let (triggers, of): (Weak<Triggers>, Weak<ProjectCache>) =
            (Arc::downgrade(&self.ctx.triggers), Arc::downgrade(&project));
        let on_fresh = move || with(&triggers, |triggers| with(&of, |project| triggers.project_again(project)));
        let watches = self.watches(&project.plane, &project.stop, project.tenant, on_fresh);
        watches.written::<Workload, _>("", PackedWorkload::of, &project.workloads);
        // If the same cluster is a cell, Karmada's copies for that cell are not federated again. All other deployments are.
        let is_original: fn(&PackedDeployment) -> bool =
            if self.ctx.options.beside_cell { PackedDeployment::is_original } else { |_| true };
        watches.written_about::<WorkloadDeployment, _>(is_original, PackedDeployment::of, &project.deployments);
        watches.objects::<LocationBinding, _>("", |binding| binding.spec.city(), &project.locations);
        watches.start::<PartialObjectMeta<Namespace>, _>("", namespace_facts, &project.namespaces);
        let projections = label::UPSTREAM_CLUSTER;
        watches.written::<Instance, _>(projections, PackedInstance::of_project, &project.instances);
        if let Some(networks) = &project.networks {
            watches.start::<PartialObjectMeta<Network>, _>("", |_| (), networks);
        }
        tracing::info!(project = %name, "project engaged");
    }

    /// Watches the ConfigMaps and Secrets of a project once one of them is referenced. The cache keeps nothing about
    /// unreferenced ones.
    pub(crate) fn watch_sources(&self, project: &ProjectCache) {
        if !project.begins_to_watch_sources() {
            return;
        }
        let watches = self.watches(&project.plane, &project.stop, project.tenant, || ());
        for kind in SourceKind::ALL {
            let sources = project.sources(kind).clone();
            watches.metadata(kind.into(), "", SOURCES_PAGE_SIZE, |_| (), sources);
        }
    }

    /// Disengages a project. This deletes nothing.
    pub(crate) fn disengage(&self, name: &ProjectName) {
        let Some(project) = self.ctx.projects.remove(name) else { return };
        project.stop.cancel();
        self.ctx.latency.forget_project(name);
        blocked::tell(&self.ctx.metrics, &self.ctx.blocked.forget_project(name, Now::read().instant));
        self.ctx.metrics.projects(self.ctx.projects.all().len());
        tracing::info!(project = %name, "project disengaged");
        self.ctx.triggers.project_gone(name);
    }

    fn watches<'a, P: Plane>(
        &'a self,
        plane: &'a ControlPlane<P>,
        stop: &'a CancellationToken,
        tenant: bool,
        on_fresh: impl Fn() + Send + Sync + 'static,
    ) -> Watches<'a, P> {
        Watches {
            plane,
            health: &self.ctx.health,
            metrics: &self.ctx.metrics,
            timing: self.ctx.options.timing.watches(),
            stop,
            tenant,
            on_fresh: Arc::new(on_fresh),
        }
    }
}
