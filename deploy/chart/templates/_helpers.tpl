{{- define "procaas.labels" -}}
app.kubernetes.io/name: procaas
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "procaas.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "procaas.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "procaas.store" -}}
- name: PROCAAS_STORE
  valueFrom: {secretKeyRef: {name: {{ .Values.store.secret | quote }}, key: {{ .Values.store.key | quote }}}}
{{- end }}
