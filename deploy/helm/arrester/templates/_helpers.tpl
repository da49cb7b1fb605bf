{{/* Labels that select the pods of a process: (dict "root" $ "process" "web"). */}}
{{- define "arrester.selector" -}}
app.kubernetes.io/name: arrester
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .process }}
{{- end }}

{{- define "arrester.labels" -}}
{{ include "arrester.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "arrester.metadata" -}}
name: {{ .root.Release.Name }}-{{ .process }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "arrester.labels" . | nindent 2 }}
{{- end }}

{{- define "arrester.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* A variable with the value of a key of the Secret: (dict "root" $ "name" … "key" … "optional" true). */}}
{{- define "arrester.secret" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .root.Values.existingSecret }}
      key: {{ .key | default .name }}
      {{- if .optional }}
      optional: true
      {{- end }}
{{- end }}

{{/* The settings that follow from the ingress, below those of the values. */}}
{{- define "arrester.settings" -}}
{{- $web := printf "%s-web" .Release.Name }}
{{- $hosts := list "127.0.0.1" "localhost" $web (printf "%s.%s.svc" $web .Release.Namespace) }}
{{- $settings := dict }}
{{- with .Values.ingress }}
{{- if .enabled }}
{{- $hosts = append $hosts .host }}
{{- $origin := printf "%s://%s" (ternary "https" "http" (not (empty .tlsSecret))) .host }}
{{- $_ := set $settings "ARRESTER_URL" $origin }}
{{- $_ := set $settings "ARRESTER_PROXIES" (toString .proxies) }}
{{- if .tlsSecret }}
{{- $_ := set $settings "ARRESTER_HTTPS" "1" }}
{{- $_ := set $settings "ARRESTER_TRUSTED_ORIGINS" $origin }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $settings "ARRESTER_ALLOWED_HOSTS" (join "," $hosts) }}
{{- mergeOverwrite $settings .Values.settings | toYaml }}
{{- end }}

{{/* The environment of a process of the server; `owner` of the migration, which owns the tables. */}}
{{- define "arrester.environment" -}}
{{- $root := .root }}
{{- if $root.Values.postgres.bundled }}
{{- $role := ternary "OWNER" "APP" .owner }}
{{- $name := printf "ARRESTER_%s_PASSWORD" $role }}
{{ include "arrester.secret" (dict "root" $root "name" $name) }}
- name: DATABASE_URL
  value: postgresql://arrester_{{ lower $role }}:$({{ $name }})@{{ $root.Release.Name }}-postgres:5432/arrester
{{- else }}
{{ include "arrester.secret" (dict "root" $root "name" "DATABASE_URL" "key" (ternary "MIGRATE_DATABASE_URL" "DATABASE_URL" .owner)) }}
{{- end }}
{{- if $root.Values.redis.bundled }}
{{ include "arrester.secret" (dict "root" $root "name" "REDIS_PASSWORD") }}
{{ include "arrester.secret" (dict "root" $root "name" "REDIS_BROKER_PASSWORD") }}
- name: REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ $root.Release.Name }}-redis:6379/0
# Another user and another database than those of agents.
- name: ARRESTER_BROKER_URL
  value: redis://arrester-broker:$(REDIS_BROKER_PASSWORD)@{{ $root.Release.Name }}-redis:6379/1
{{- else }}
{{ include "arrester.secret" (dict "root" $root "name" "REDIS_URL") }}
{{ include "arrester.secret" (dict "root" $root "name" "ARRESTER_BROKER_URL") }}
{{- end }}
{{ include "arrester.secret" (dict "root" $root "name" "ARRESTER_SECRET_KEY") }}
{{- range list "ARRESTER_OLD_SECRET_KEYS" "ARRESTER_SMTP_URL" "ARRESTER_OIDC_CLIENT_SECRET" "ARRESTER_DEAD_LETTERS_KAFKA" "OTEL_EXPORTER_OTLP_HEADERS" }}
{{ include "arrester.secret" (dict "root" $root "name" . "optional" true) }}
{{- end }}
{{- if .owner }}
{{- range list "ADMIN" "OPERATOR" "VIEWER" }}
{{ include "arrester.secret" (dict "root" $root "name" (printf "ARRESTER_%s_PASSWORD" .)) }}
{{- end }}
{{- end }}
{{- range $name, $value := include "arrester.settings" $root | fromYaml }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* A selector of all pods of the server. */}}
{{- define "arrester.serverPods" -}}
matchLabels:
  app.kubernetes.io/name: arrester
  app.kubernetes.io/instance: {{ .Release.Name }}
matchExpressions:
  - key: app.kubernetes.io/component
    operator: In
    values: [web, worker, wake, housekeeper, migrate]
{{- end }}

{{/* What a pod may not do: (dict "user" 10001). */}}
{{- define "arrester.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  fsGroup: {{ .user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
automountServiceAccountToken: false
# Variables such as ARRESTER_WEB_PORT would be taken for settings.
enableServiceLinks: false
{{- end }}

{{- define "arrester.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "arrester.container" -}}
image: {{ include "arrester.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{ include "arrester.containerSecurity" . }}
env:
  {{- include "arrester.environment" . | trim | nindent 2 }}
resources:
  {{- toYaml (get .root.Values .process).resources | nindent 2 }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if not (include "arrester.dataIsMounted" .root) }}
  - name: data
    mountPath: /data
  {{- end }}
  {{- with .root.Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "arrester.dataIsMounted" -}}
{{- range .Values.volumeMounts }}{{ if eq .mountPath "/data" }}true{{ end }}{{ end }}
{{- end }}

{{/* What all pods of the server have: (dict "root" $ "process" "web"). */}}
{{- define "arrester.pod" -}}
{{ include "arrester.podSecurity" (dict "user" 10001) }}
serviceAccountName: {{ .root.Values.serviceAccountName }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- if not (include "arrester.dataIsMounted" .root) }}
  - name: data
    emptyDir: {}
  {{- end }}
  {{- with .root.Values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "arrester.podMetadata" -}}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "arrester.labels" . | nindent 2 }}
{{- end }}

{{/* Begin when the migration of this version is applied: the old pods run until then. */}}
{{- define "arrester.waitForMigrations" -}}
initContainers:
  - name: migrations
    command: ["sh", "-c", "until python -m arrester migrate --check --verbosity 0; do sleep 2; done"]
    {{- include "arrester.container" . | nindent 4 }}
{{- end }}

{{/* Spread the pods of a process over nodes, if there are several. */}}
{{- define "arrester.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "arrester.selector" . | nindent 8 }}
{{- end }}

{{/* Drains of nodes take one pod at a time. */}}
{{- define "arrester.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "arrester.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "arrester.selector" . | nindent 6 }}
{{- end }}

{{/* As the health check of docker-compose.yml: a worker that does not answer is shown as not ready. It is
     not restarted, since it does not answer while Redis is away, and continues by itself. */}}
{{- define "arrester.workerProbe" -}}
readinessProbe:
  exec:
    command: ["sh", "-c", "celery -A arrester.controlplane inspect ping --destination celery@$(hostname)"]
  initialDelaySeconds: 10
  periodSeconds: 30
  timeoutSeconds: 20
  failureThreshold: 3
{{- end }}
