//! Answers of the ResourceInterpreterCustomization's scripts about WorkloadDeployments.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{Federation, cache::hash, conversion::Shape, lua};

/// An operation of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Dependencies,
    Reflection,
    Aggregation,
    Retention,
}

impl Operation {
    /// Returns its name in `spec.customizations`, and the name of the script's function.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Dependencies => ("dependencyInterpretation", "GetDependencies"),
            Self::Reflection => ("statusReflection", "ReflectStatus"),
            Self::Aggregation => ("statusAggregation", "AggregateStatus"),
            Self::Retention => ("retention", "Retain"),
        }
    }
}

/// The last answer for each object, by uid. Every pass asks again, and most of the time nothing has changed.
#[derive(Debug, Default)]
pub(super) struct Interpreter(Mutex<HashMap<(Operation, String), (Question, Answer)>>);

/// The script, the object and its version.
type Question = String;

/// The result of a script.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// There is no script for this operation.
    NoScript,
    /// The script does not load, or raises an error.
    Raised(String),
    /// The returned value.
    Said(Value),
}

impl Federation {
    /// Returns the script's answer for this version of the object.
    pub(super) fn interpret(
        &self,
        operation: Operation,
        kind: &str,
        object: &DynamicObject,
        more: Option<&Value>,
    ) -> Answer {
        let (_, function) = operation.names();
        let Some(script) = self.script(operation, kind) else { return Answer::NoScript };
        let rest = hash(&format!("{script}{}", more.map(ToString::to_string).unwrap_or_default()));
        let question = format!("{}/{rest}", object.resource_version().unwrap_or_default());
        let key = (operation, object.uid().unwrap_or_default());
        let mut answers = self.interpreter.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = answers.get(&key).filter(|(asked, _)| *asked == question) {
            return answer.clone();
        }
        let object = json!(object);
        let arguments: Vec<&Value> = [&object].into_iter().chain(more).collect();
        let shape = if operation == Operation::Dependencies { Shape::List } else { Shape::Object };
        let answer = match lua::call(&script, function, &arguments, shape, &[]) {
            Ok(value) => Answer::Said(value),
            Err(error) => Answer::Raised(format!("{error:#}")),
        };
        answers.insert(key, (question, answer.clone()));
        answer
    }

    /// Returns the object for a member after the retention script, or `None` without a script. Only here Karmada has references
    /// to distinguish empty lists from empty objects (fact 74).
    pub(super) fn retain(&self, kind: &str, desired: &Value, observed: &Value) -> anyhow::Result<Option<Value>> {
        let (_, function) = Operation::Retention.names();
        let both = [desired, observed];
        let script = self.script(Operation::Retention, kind);
        script.map(|script| lua::call(&script, function, &both, Shape::Object, &both)).transpose()
    }

    fn script(&self, operation: Operation, kind: &str) -> Option<String> {
        let (name, _) = operation.names();
        self.hub.all("ResourceInterpreterCustomization").iter().find_map(|customization| {
            let spec = &customization.data["spec"];
            let script = spec["customizations"][name]["luaScript"].as_str();
            script.filter(|_| spec["target"]["kind"] == kind).map(str::to_owned)
        })
    }
}
