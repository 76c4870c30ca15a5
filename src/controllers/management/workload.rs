//! Controller of Workloads: writes their WorkloadDeployments, and sums up the status of those in the Workload's status.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt;

use super::{
    Context, projects::project_cache::ProjectCache, wiring::index::workload_index, wiring::queues::ProjectKey,
};
use crate::{
    api::{
        compute::{Workload, WorkloadDeployment},
        names::CityCode,
    },
    controllers::{Reconciler, Refused, came_of, contests::Contests, is_silence, record, send, worst},
    io::{Class, Error, clock::Now, health::Failing, store::ObjectKey},
    plan::{
        Next, Project, Shared, Write,
        contest::{Regarding, Sent},
        management::workload::{
            fan_out::{self, Observed},
            placement,
            refusal::{self, Cause, Refusal},
        },
    },
    timing::Timing,
};

/// Reconciles the deployments of each Workload, and sums up their reports in its status.
pub(super) struct WorkloadController {
    pub(super) ctx: Arc<Context>,
    pub(super) contests: Contests<ProjectKey>,
}

impl Reconciler for WorkloadController {
    const NAME: &'static str = "workload";
    type Key = ProjectKey;

    fn by_server(&self, key: &ProjectKey, now: Now) -> Now {
        self.ctx.projects.get(&key.project).map_or(now, |project| now.on(project.plane.connection().clock()))
    }

    /// 1. Waits until all caches of the decision are filled. A filled cache enqueues every key. A watch that never works is
    ///    reported.
    /// 2. Observes the Workload, its deployments, cities and Networks.
    /// 3. Plans the writes. Writes that another client reverts again and again, or that the API server does not store, wait. If
    ///    there are no other writes, the status is written without them.
    /// 4. Sends the writes. After a refused one it continues as far as the plan allows. A refusal is reported on the Workload: at
    ///    once if only a person can resolve it, otherwise after the grace period.
    async fn reconcile(&self, key: &ProjectKey, now: Now, failing: Duration) -> Result<Next, Error> {
        let Some(project) = self.ctx.projects.get(&key.project) else { return Ok(Next::Await) };
        if !project.is_synced() {
            return Ok(Next::Await);
        }
        let Some(workload) = project.workloads.get(&key.object).and_then(|packed| packed.open()) else {
            self.contests.forget(key);
            return Ok(Next::Await);
        };
        let deleting = workload.metadata.deletion_timestamp.is_some();
        let networks_known = project.networks.as_ref().is_none_or(|networks| networks.is_synced());
        let known = deleting || project.locations.is_synced() && networks_known;
        if !known {
            return self.report_unread(&project, &workload, now).await;
        }
        // The search reads the state of every watch of the manager, so a look at a working watch does without it.
        let locations_fail =
            if project.locations.is_live() { None } else { self.failing(&["locationbindings"], &project, now) };
        let locations_fail = locations_fail.map(|failing| failing.outline);
        let mut observed =
            Observed { locations_fail, ..observe(&project, &key.object, workload, &self.ctx.options.timing) };
        let mut plan = fan_out::plan(&observed, now.time);
        if self.contests.all_wait(key, &plan, now.time) {
            observed.contested = true;
            plan = fan_out::plan(&observed, now.time);
        }
        record(Self::NAME, key, &observed, now, &plan);
        let regarding = Regarding::of(&*observed.workload);
        let mut round = self.contests.begin(key, &mut plan, &regarding, now.time);
        let failed = self.write(&project, &plan.steps, failing, |sent| round.came(sent)).await?;
        drop(round);
        let refused: Vec<Refusal> = failed.iter().map(|(write, error)| refusal_of(write, error, failing)).collect();
        if let Some(reported) = fan_out::refused(&observed, &refused, now.time) {
            send(&project.plane, &reported, &self.ctx.metrics).await?;
        }
        worst(failed.into_iter().map(|(_, error)| error)).map_or(Ok(plan.next), Err)
    }
}

impl WorkloadController {
    /// Returns the failing watch among those of these kinds.
    fn failing(&self, kinds: &[&str], project: &ProjectCache, now: Now) -> Option<Failing> {
        self.ctx.health.failing(kinds, project.plane.name(), now.instant)
    }

    /// Reports a watch that has never worked, after the grace period. When the watch works, it enqueues every key.
    async fn report_unread(&self, project: &ProjectCache, workload: &Workload, now: Now) -> Result<Next, Error> {
        let grace = self.ctx.options.timing.error_grace;
        let failing = self.failing(&["locationbindings", "networks"], project, now);
        let Some(failing) = failing else { return Ok(Next::After(grace)) };
        let report = fan_out::unread(workload, &failing.outline, failing.lasted, &self.ctx.options.timing, now.time);
        if let Some(report) = report {
            send(&project.plane, &report, &self.ctx.metrics).await?;
        }
        let left = grace.checked_sub(failing.lasted).filter(|left| !left.is_zero());
        Ok(left.map_or(Next::Await, Next::After))
    }

    /// Sends the allowed writes and returns the refused ones. It stops if the project does not answer. After the grace period a
    /// missing answer counts as a refusal, because a hanging webhook looks the same.
    async fn write<'a>(
        &self,
        project: &ProjectCache,
        writes: &'a [Write<Project>],
        failing: Duration,
        mut came: impl FnMut(Sent),
    ) -> Result<Refused<'a, Project>, Error> {
        let (mut failed, mut refused) = (Vec::new(), Vec::new());
        for write in writes {
            if !refusal::may_follow(write, &refused) {
                came(Sent::Refused);
                continue;
            }
            match send(&project.plane, write, &self.ctx.metrics).await {
                Ok(answer) => came(came_of(answer)),
                Err(error) => {
                    let silence = is_silence(&error);
                    if silence && !self.ctx.options.timing.outlasts_grace(failing) {
                        return Err(error);
                    }
                    came(Sent::Refused);
                    refused.push(refusal_of(write, &error, failing));
                    failed.push((write, error));
                    if silence {
                        break;
                    }
                }
            }
        }
        Ok(failed)
    }
}

fn refusal_of(write: &Write<Project>, error: &Error, failing: Duration) -> Refusal {
    let cause = match (error, error.class()) {
        (_, Class::Forbidden) if error.is_of_terminating_namespace() => Cause::Passing { lasted: failing },
        (_, Class::Forbidden | Class::Invalid) if error.is_denied() => Cause::Denied,
        (_, Class::Forbidden) => Cause::Forbidden,
        (_, Class::Invalid) => Cause::Invalid,
        (_, Class::Retry | Class::Unauthenticated | Class::Conflict | Class::Gone) => {
            Cause::Passing { lasted: failing }
        }
    };
    Refusal::of(write, cause, error.words_in_project())
}

/// Returns the open cities that a Workload names. If one of its cities is closed, returns all open cities of its project.
fn open_cities(project: &ProjectCache, workload: &Workload) -> BTreeSet<CityCode> {
    let is_open = |city: &CityCode| !project.locations.keys_by_index(city.as_str()).is_empty();
    if placement::cities(workload).all(|city| is_open(&city)) {
        return placement::cities(workload).collect();
    }
    project.locations.values().iter().filter_map(|city| (**city).clone()).collect()
}

/// Returns the snapshot of one Workload. Each object is read once.
fn observe(project: &ProjectCache, key: &ObjectKey, workload: Workload, timing: &Timing) -> Observed {
    let networks = project.networks.as_ref().map(|networks| {
        let is_there = |name: &&String| networks.get(&ObjectKey::new(&key.namespace, name)).is_some();
        fan_out::networks(&workload).filter(is_there).cloned().collect()
    });
    let deployments = project.deployments.by_index(&workload_index(&workload.uid().unwrap_or_default()));
    let deployments: Vec<Shared<WorkloadDeployment>> = deployments.iter().map(|deployment| deployment.open()).collect();
    let beside = deployments.iter().filter(|own| own.metadata.namespace.as_deref() == Some(&*key.namespace));
    let own: BTreeMap<&str, &Shared<WorkloadDeployment>> =
        beside.filter_map(|own| Some((own.metadata.name.as_deref()?, own))).collect();
    let named = placement::names(&workload).into_iter().filter_map(|name| {
        let own = own.get(&*name).copied().cloned();
        // Another owner's object may have the name.
        let deployment = own.or_else(|| project.deployment(&ObjectKey::new(&key.namespace, &name)))?;
        Some((name, deployment))
    });
    // A deletion needs every deployment that is deleted with the Workload.
    let deleting = workload.metadata.deletion_timestamp.is_some();
    let unreadable = if deleting { project.deployments.unreadable_in(&key.namespace) } else { Vec::new() };
    Observed {
        locations_fail: None,
        unreadable: unreadable.iter().map(ToString::to_string).collect(),
        named: named.collect(),
        deployments,
        bound: open_cities(project, &workload),
        namespace_uid: project.namespace_uid(&key.namespace),
        networks,
        workload: workload.into(),
        contested: false,
        timing: *timing,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{controllers::management::fixtures, io::store::Incoming};

    /// The message for the owner of a closed city listed only cities that the Workload itself named.
    #[tokio::test]
    async fn cities_of_the_project_are_listed_if_one_of_the_workload_is_closed() {
        let project = fixtures::project("alpha");
        let opened = |name: &str| {
            let city = Some(CityCode::parse(name).unwrap());
            Incoming { key: ObjectKey::new("", name), uid: name.into(), version: 1, value: Some(Arc::new(city)) }
        };
        project.locations.replace(vec![opened("dfw"), opened("ord")], 1);
        for (named, expected) in [(json!(["dfw"]), &["dfw"][..]), (json!(["lhr"]), &["dfw", "ord"]), (json!([]), &[])] {
            let template =
                json!({ "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } });
            let placement = json!({ "name": "edge", "cityCodes": named, "scaleSettings": { "minReplicas": 1 } });
            let workload =
                json!({ "metadata": { "name": "web" }, "spec": { "template": template, "placements": [placement] } });
            let open = open_cities(&project, &serde_json::from_value(workload).unwrap());
            assert_eq!(open.iter().map(CityCode::as_str).collect::<Vec<_>>(), expected, "{named}");
        }
    }
}
