//! Works whose template is gone: what Karmada still keeps on a cluster of what was deleted on the hub.
//!
//! Karmada lets a deleted template go at once, and deletes its Works after it. A Work of a cluster that does not answer stays,
//! on its way out, for as long as that lasts (fact 32): what it holds runs on there, and nobody else would say so. A Work
//! that is not on its way out was forgotten: its template was deleted while Karmada was about to make it (its issue 7896).

use std::{collections::BTreeMap, convert::identity, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::annotation,
        names::{HubNamespace, Template, cluster_of_works},
        reason::Reason,
    },
    plan::{
        Hub, Kind, NamespaceFacts, Object, ObjectVersion, Plan, Proof, Write,
        event::{self, Note, Severity},
    },
    timing::Timing,
};

/// What is kept of a Work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkFacts {
    /// The Work.
    pub work: Object,
    /// Its version.
    pub version: ObjectVersion,
    /// The cluster that it is for.
    pub cluster: String,
    /// What it was made of.
    pub template: Object,
    /// Name of the template's binding, in the template's namespace.
    pub binding: String,
    /// Since when it is on its way out.
    pub going_since: Option<Timestamp>,
}

impl WorkFacts {
    /// From a Work's metadata; nothing of one that was not made of a deployment or of what may be a companion.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let annotations = meta.annotations.as_ref()?;
        let namespace = annotations.get(annotation::WORK_BINDING_NAMESPACE)?.clone();
        let binding = annotations.get(annotation::WORK_BINDING_NAME)?.clone();
        let (place, name) = (meta.namespace.clone()?, meta.name.clone()?);
        let cluster = cluster_of_works(&place)?.to_owned();
        let template = match Template::of_binding(&binding) {
            Template::Deployment(name) => Object::named::<WorkloadDeployment>(&namespace, &name),
            Template::Companion(data_ref) => Object { kind: data_ref.kind.into(), namespace, name: data_ref.name },
            Template::Foreign => return None,
        };
        Some(Self {
            work: Object { kind: Kind::Work, namespace: place, name },
            version: ObjectVersion::of(meta),
            cluster,
            template,
            binding,
            going_since: meta.deletion_timestamp.as_ref().map(|at| at.0),
        })
    }
}

/// What is known of one Work whose template is not known to be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct Observed {
    /// The Work.
    pub work: WorkFacts,
    /// Whether the template's binding is: Karmada would make the Work anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bound: bool,
    /// The template's namespace on the hub; nothing when there is none that mirrors one of a project.
    pub namespace: Option<NamespaceFacts>,
    /// Whether the sweep before this one has found the same.
    pub suspected: bool,
    /// Whether a live read has found no template since it was first missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proved: bool,
    /// Whether sweeps delete nothing, there or anywhere.
    pub paused: bool,
    /// How long to wait for what.
    pub timing: Timing,
}

/// What the controller is to remember and to count of a Work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The next sweep is to look again.
    Suspected,
    /// It is still there, although its template is long gone: once the live read of the plan, or an earlier one, has found none.
    Left,
}

/// Decides about one Work. One that Karmada is removing is its own to remove, and told once it takes long. One that it has
/// forgotten goes when two sweeps have found it so and a live read finds no template. Nothing is said to be left without such a
/// read either: what our lists do not have may be somebody else's, brought by a policy of his.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Hub>, Signal> {
    let Observed { work, bound, namespace, suspected, proved, paused, timing } = observed;
    // Of a hub namespace that has gone itself nothing tells any more whose it was: what is left of it is counted.
    let gone = namespace.is_none() && HubNamespace::is_form_of(&work.template.namespace);
    let facts = namespace.as_ref().filter(|facts| facts.upstream().is_some());
    if facts.is_none() && !gone {
        return Plan::nothing();
    }
    let cause = || Write::<Hub>::confirm_absent(work.template.clone());
    // Nothing is said to be left without this read, unless an earlier look has made it.
    let proof = || if *proved { Vec::new() } else { vec![cause().into()] };
    if let Some(since) = work.going_since {
        let long = Duration::try_from(now.duration_since(since)).is_ok_and(|since| since >= timing.work_removal);
        return if long { Plan::writes(proof()).with([Signal::Left]) } else { Plan::nothing() };
    }
    if !suspected {
        return Plan::nothing().with([Signal::Suspected]);
    }
    let stays = *paused || *bound || facts.is_none_or(|facts| facts.paused);
    let writes = if stays {
        proof()
    } else {
        Proof::read(cause(), identity).delete_version(work.work.clone(), work.version.clone(), identity).into_steps()
    };
    Plan::writes(writes).with([Signal::Suspected, Signal::Left])
}

/// What is left of a namespace on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many Works there are of templates that are gone.
    pub count: usize,
    /// One of those templates, in words.
    pub example: String,
}

/// What is left, by hub namespace and cluster.
pub type AllLeft = BTreeMap<(String, String), Left>;

/// Counts one more.
pub fn count(left: &mut AllLeft, work: &WorkFacts) {
    let left = left.entry((work.template.namespace.clone(), work.cluster.clone())).or_default();
    left.count += 1;
    if left.example.is_empty() {
        left.example = work.template.to_string();
    }
}

/// Says on a hub namespace what is left of it on a cluster.
pub fn tell(namespace: &str, uid: &str, cluster: &str, left: &Left, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "Karmada still keeps {} Work(s) for Cluster {cluster} of what is deleted here, of {} among them: as long as that \
         cluster does not answer, it runs on there",
        left.count, left.example
    );
    let note = Note { severity: Severity::Warning, reason: Reason::LeftOnCluster, action: "Sweeping", text: &text };
    let object = Object::named::<Namespace>("", namespace);
    event::about(&object, &ObjectVersion::new(uid, ""), "sweep", &note, now)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::meta::label,
        plan::{Op, recorded::recorded},
    };

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn meta(binding: Option<&str>, going: Option<&str>) -> ObjectMeta {
        let mut meta = json!({
            "name": "web-123", "namespace": "karmada-es-cell-dfw", "uid": "w1", "resourceVersion": "7", "annotations": {},
        });
        if let Some(binding) = binding {
            meta["annotations"] =
                json!({ "resourcebinding.karmada.io/namespace": "ns-n1", "resourcebinding.karmada.io/name": binding });
        }
        if let Some(going) = going {
            meta["deletionTimestamp"] = json!(going);
        }
        serde_json::from_value(meta).unwrap()
    }

    fn observed(going: Option<&str>) -> Observed {
        let labels = [(label::UPSTREAM_CLUSTER, "cluster-single"), (label::UPSTREAM_NAMESPACE, "shop")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Observed {
            work: WorkFacts::of(&meta(Some("web-dfw-workloaddeployment"), going)).unwrap(),
            bound: false,
            namespace: Some(NamespaceFacts { labels, ..NamespaceFacts::default() }),
            suspected: true,
            proved: false,
            paused: false,
            timing: Timing::default(),
        }
    }

    const ELSEWHERE: &str = "ns-of-somebody-else";
    const GONE: &str = "ns-0b0b2f5c-9d6c-4f2a-9a36-0f6c3a5c7c11";

    /// A Work of a namespace that is not known.
    fn of(namespace: &str, going: Option<&str>) -> Observed {
        let mut observed = Observed { namespace: None, ..observed(going) };
        observed.work.template.namespace = namespace.into();
        observed
    }

    impl Observed {
        fn first(self) -> Self {
            Self { suspected: false, ..self }
        }
    }

    fn decide(observed: &Observed) -> (usize, Vec<Signal>) {
        let plan = plan(observed, NOW.parse().unwrap());
        let again = super::plan(&recorded(observed), NOW.parse().unwrap());
        assert_eq!(format!("{again:?}"), format!("{plan:?}"), "decided again from its record");
        (plan.steps.len(), plan.signals)
    }

    #[test]
    fn a_work_says_which_template_it_was_made_of() {
        let of = |binding| WorkFacts::of(&meta(binding, None)).map(|facts| facts.template.to_string());
        assert_eq!(of(Some("web-dfw-workloaddeployment")).as_deref(), Some("WorkloadDeployment ns-n1/web-dfw"));
        assert_eq!(of(Some("db-secret")).as_deref(), Some("Secret ns-n1/db"));
        assert_eq!(of(Some("web-deployment")), None);
        assert_eq!(of(None), None, "one of a namespace");
        let mut elsewhere = meta(Some("db-secret"), None);
        elsewhere.namespace = Some("default".into());
        assert_eq!(WorkFacts::of(&elsewhere), None);
    }

    #[test]
    fn only_what_karmada_forgot_is_removed_and_only_after_two_looks_and_a_live_read() {
        use Signal::{Left, Suspected};
        let forgotten = observed(None);
        let foreign = Observed { namespace: Some(NamespaceFacts::default()), ..forgotten.clone() };
        let proved = |observed: Observed| Observed { proved: true, ..observed };
        let away = || observed(Some("2026-01-01T00:00:00Z"));
        let mut held = forgotten.clone();
        held.namespace.as_mut().unwrap().paused = true;
        for (what, observed, writes, signals) in [
            ("twice", forgotten.clone(), 2, vec![Suspected, Left]),
            ("once", Observed { suspected: false, ..forgotten.clone() }, 0, vec![Suspected]),
            (
                "its binding has outlived the template",
                Observed { bound: true, ..forgotten.clone() },
                1,
                vec![Suspected, Left],
            ),
            ("its template was not found before", proved(forgotten.clone()), 2, vec![Suspected, Left]),
            ("clean-up is paused", Observed { paused: true, ..forgotten.clone() }, 1, vec![Suspected, Left]),
            ("it is paused there", held.clone(), 1, vec![Suspected, Left]),
            ("the same, and its template was not found before", proved(held), 0, vec![Suspected, Left]),
            ("somebody else's namespace", foreign, 0, vec![]),
            ("no namespace that we know", of(ELSEWHERE, None), 0, vec![]),
            ("of a hub namespace that is gone, once", of(GONE, None).first(), 0, vec![Suspected]),
            ("the same, twice", of(GONE, None), 1, vec![Suspected, Left]),
            ("the same, and a cluster is away", of(GONE, Some("2026-01-01T00:00:00Z")), 1, vec![Left]),
            ("under way", observed(Some("2026-01-01T00:00:01Z")), 0, vec![]),
            ("a cluster is away", away(), 1, vec![Left]),
            ("the same, and its template was not found before", proved(away()), 0, vec![Left]),
        ] {
            // Found by reading: somebody else's ConfigMap beside ours, brought by a policy of his, was told to be left for ever.
            if signals.contains(&Left) && !observed.proved {
                let steps = plan(&observed, NOW.parse().unwrap()).steps;
                assert_eq!(steps[0].op, Op::ConfirmAbsent, "{what}: a live read comes first");
            }
            assert_eq!(decide(&observed), (writes, signals), "{what}");
        }
        let plan = plan(&forgotten, NOW.parse().unwrap());
        let [confirm, delete] = &plan.steps[..] else { panic!("{plan:?}") };
        assert_eq!(
            (&confirm.op, confirm.object.to_string().as_str()),
            (&Op::ConfirmAbsent, "WorkloadDeployment ns-n1/web-dfw")
        );
        assert_eq!(delete.op, Op::Delete { uid: "w1".into(), resource_version: "7".into() });
        assert_eq!(delete.object.to_string(), "Work karmada-es-cell-dfw/web-123");
    }

    #[test]
    fn what_is_left_is_told_by_namespace_and_cluster() {
        let mut left = AllLeft::new();
        for binding in ["web-dfw-workloaddeployment", "db-secret"] {
            count(&mut left, &WorkFacts::of(&meta(Some(binding), None)).unwrap());
        }
        let (place, left) = left.pop_first().unwrap();
        assert_eq!(place, ("ns-n1".to_owned(), "cell-dfw".to_owned()));
        let event = tell("ns-n1", "n", "cell-dfw", &left, NOW.parse().unwrap());
        let Op::Create { body, .. } = &event.op else { panic!("{event:?}") };
        let note: &Value = &body["note"];
        let says = note.as_str().unwrap();
        assert!(
            says.contains("2 Work(s) for Cluster cell-dfw") && says.contains("WorkloadDeployment ns-n1/web-dfw"),
            "{note}"
        );
        assert_eq!(body["regarding"]["name"], "ns-n1");
    }
}
