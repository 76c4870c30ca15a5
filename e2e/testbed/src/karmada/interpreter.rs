//! What the ResourceInterpreterCustomization's scripts answer about WorkloadDeployments.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;

use super::{Federation, cache::hash, lua};

/// What a script is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Dependencies,
    Reflection,
    Aggregation,
}

impl Operation {
    /// Its name in `spec.customizations`, and that of the script's function.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Dependencies => ("dependencyInterpretation", "GetDependencies"),
            Self::Reflection => ("statusReflection", "ReflectStatus"),
            Self::Aggregation => ("statusAggregation", "AggregateStatus"),
        }
    }
}

/// The last answer about each object (by uid): every pass asks again, and most of the time nothing has changed.
#[derive(Debug, Default)]
pub(super) struct Interpreter(Mutex<HashMap<(Operation, String), Answer>>);

/// What was asked, and what the script said.
#[derive(Debug)]
struct Answer {
    question: String,
    said: Option<Value>,
}

impl Federation {
    /// What the script says of this version of the object; nothing when there is no script, or it raises (fact 38).
    pub(super) fn interpret(
        &self,
        operation: Operation,
        object: &DynamicObject,
        more: Option<&Value>,
    ) -> Option<Value> {
        let (name, function) = operation.names();
        let script = self.hub.all("ResourceInterpreterCustomization").iter().find_map(|customization| {
            let spec = &customization.data["spec"];
            let ours = spec["target"]["kind"] == "WorkloadDeployment";
            let script = spec["customizations"][name]["luaScript"].as_str();
            script.filter(|_| ours).map(str::to_owned)
        })?;
        let rest = hash(&format!("{script}{}", more.map(ToString::to_string).unwrap_or_default()));
        let question = format!("{}/{rest}", object.resource_version().unwrap_or_default());
        let key = (operation, object.uid().unwrap_or_default());
        let mut answers = self.interpreter.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(&key).filter(|answer| answer.question == question) {
            return answer.said.clone();
        }
        let object = serde_json::to_value(object).ok()?;
        let arguments: Vec<&Value> = [&object].into_iter().chain(more).collect();
        let said = lua::call(&script, function, &arguments).ok();
        answers.insert(key, Answer { question, said: said.clone() });
        said
    }
}
