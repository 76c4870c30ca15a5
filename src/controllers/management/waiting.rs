//! Gathers everything that waits from the caches of the projects.

use std::collections::HashSet;

use jiff::Timestamp;

use super::{Context, projects::project_cache::ProjectCache};
use crate::{
    api::names::{self, CityCode},
    plan::management::waiting::{self, Answer, Query, Totals, Waiting},
};

impl Context {
    /// Answers a request for what waits. It reads caches only.
    ///
    /// # Errors
    /// One line if a parameter is not usable.
    pub(super) fn waiting(&self, query: &Query, now: Timestamp) -> Result<Answer, String> {
        let (mut workloads, mut deployments, mut totals) = (Vec::new(), Vec::new(), Totals::default());
        for project in self.projects.all() {
            totals.projects += 1;
            totals.deployments += project.deployments.count();
            if !project.is_synced() {
                totals.incomplete.push(project.name.clone());
            }
            workloads.extend(
                project.workloads.values().iter().filter_map(|workload| waiting::workload(&project.name, workload)),
            );
            deployments.extend(self.waiting_in(&project));
        }
        waiting::answer(query, workloads, deployments, totals, now)
    }

    /// Updates the metric of what waits. It reads caches only.
    pub(super) fn count_waiting(&self) {
        let projects = self.projects.all();
        let deployments = projects.iter().flat_map(|project| project.deployments.values());
        let waits: Vec<_> = deployments.filter(|one| one.wait().is_some() && one.is_original()).collect();
        let covered: HashSet<&str> = waits.iter().map(|one| one.workload_uid()).collect();
        let mut alone = Vec::new();
        for workload in projects.iter().flat_map(|project| project.workloads.values()) {
            let meta = &workload.metadata;
            if !meta.uid.as_ref().is_some_and(|uid| covered.contains(&**uid)) {
                let conditions = workload.status.as_ref().map_or(&[][..], |status| &status.conditions);
                alone.extend(waiting::wait(meta, conditions));
            }
        }
        let in_cities = waits.iter().filter_map(|one| Some((one.wait()?, one.city_code())));
        let groups = waiting::count(in_cities.chain(alone.iter().map(|wait| (wait, ""))));
        let rows = groups.iter().map(|(group, count)| (&*group.reason, group.who.label(), &*group.city, *count));
        self.metrics.waiting(rows);
    }

    /// Returns the deployments of a project that wait, each with the name of its Workload.
    fn waiting_in<'a>(&'a self, project: &'a ProjectCache) -> impl Iterator<Item = (Waiting, String)> + 'a {
        let unready = project.deployments.values().into_iter().filter(|one| one.wait().is_some() && one.is_original());
        unready.filter_map(|one| {
            let deployment = one.open();
            let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
            let name = deployment.metadata.name.as_deref().unwrap_or_default();
            let copied_to = project.namespace_uid(namespace).map(|uid| names::hub_namespace(&uid));
            let binding = copied_to.and_then(|hub_namespace| self.hub.binding_of(&hub_namespace, name));
            let mut clusters = binding.map(|binding| binding.clusters.to_vec()).unwrap_or_default();
            if clusters.is_empty() {
                let city = CityCode::parse(&deployment.spec.city_code);
                clusters = city.map(|city| self.hub.clusters_of(&city)).unwrap_or_default();
            }
            let workload = deployment.spec.workload_ref.name.clone();
            Some((waiting::deployment(&project.name, &deployment, clusters)?, workload))
        })
    }
}
