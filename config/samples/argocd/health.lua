-- Health of a Workload, a WorkloadDeployment or an Instance, for Argo CD. It judges as kstatus does, and names a suspension.
-- Argo CD reads it from its ConfigMap argocd-cm: docs/status.md shows how.
local health = { status = "Progressing", message = "The operator has not looked at it yet" }
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "It is being deleted"
  return health
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end
local observed = obj.status.observedGeneration
if observed ~= nil and observed ~= obj.metadata.generation then
  health.message = "The operator has not observed the latest change yet"
  return health
end
local found = {}
for _, condition in ipairs(obj.status.conditions) do
  found[condition.type] = condition
end
local function holds(name)
  return found[name] ~= nil and found[name].status == "True"
end
local ready = found["Ready"]
if holds("Reconciling") then
  health.message = found["Reconciling"].message
elseif holds("Stalled") then
  health.status = "Degraded"
  health.message = found["Stalled"].message
elseif ready ~= nil then
  health.message = ready.message
  if ready.status == "True" then
    health.status = "Healthy"
  elseif ready.reason == "Suspended" then
    health.status = "Suspended"
  end
end
return health
