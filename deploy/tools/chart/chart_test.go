// Package chart tests the chart of Helm in deploy/chart.
package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const dir = "../../chart"

// render returns the objects of the chart with some values, by kind and name. Each has only fields that its kind has.
func render(t *testing.T, values map[string]any) map[string]any {
	t.Helper()
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "taxi", Namespace: "apps", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for _, text := range strings.Split("\n"+files[name], "\n---") {
			if strings.TrimSpace(text) == "" {
				continue
			}
			var head struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			var object any
			switch head.Kind {
			case "ConfigMap":
				object = &corev1.ConfigMap{}
			case "Service":
				object = &corev1.Service{}
			case "Deployment":
				object = &appsv1.Deployment{}
			case "Job":
				object = &batchv1.Job{}
			case "PodDisruptionBudget":
				object = &policyv1.PodDisruptionBudget{}
			case "HorizontalPodAutoscaler":
				object = &autoscalingv2.HorizontalPodAutoscaler{}
			case "NetworkPolicy":
				object = &networkingv1.NetworkPolicy{}
			default:
				t.Fatalf("%s: the kind %q is not expected\n%s", name, head.Kind, text)
			}
			if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			objects[head.Kind+" "+head.Metadata.Name] = object
		}
	}
	return objects
}

func TestChartIsSound(t *testing.T) {
	for _, m := range lint.AllWithKubeVersion(dir, nil, "apps", &chartutil.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}).Messages {
		if m.Severity >= support.WarningSev {
			t.Error(m)
		}
	}
}

// Pods without files: they have all objects, run as an ordinary user on a read-only root, and are asked for their health.
func TestChartWithDefaults(t *testing.T) {
	objects := render(t, nil)
	for _, want := range []string{
		"ConfigMap taxi-config", "Deployment taxi", "Service taxi", "Service taxi-admin", "PodDisruptionBudget taxi", "NetworkPolicy taxi",
		"Job taxi-migrate",
	} {
		if objects[want] == nil {
			t.Errorf("there is no %s", want)
		}
	}
	pod := objects["Deployment taxi"].(*appsv1.Deployment).Spec.Template.Spec
	c := pod.Containers[0]
	switch {
	case !*c.SecurityContext.ReadOnlyRootFilesystem, *c.SecurityContext.AllowPrivilegeEscalation, *pod.SecurityContext.RunAsUser != 65532:
		t.Errorf("the pod may do too much: %+v, %+v", pod.SecurityContext, c.SecurityContext)
	case c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz":
		t.Errorf("have probes %+v and %+v", c.LivenessProbe, c.ReadinessProbe)
	}
	if have := env(c, "PROCAAS_PIPELINES") + env(c, "PROCAAS_MIGRATE"); have != "false" {
		t.Errorf("have %q, want no pipelines and no migration", have)
	}
	job := objects["Job taxi-migrate"].(*batchv1.Job)
	if hook := job.Annotations["helm.sh/hook"]; hook != "pre-install,pre-upgrade" {
		t.Errorf("the migration is no hook: %q", hook)
	}
}

func TestChartWithOtherValues(t *testing.T) {
	objects := render(t, map[string]any{
		"flows": map[string]any{"from": "configMap", "files": map[string]any{"ping.yaml": "pipelines: []\n"}}, "tls": "cert", "secrets": "words",
		"autoscaling": map[string]any{"enabled": true}, "migrate": map[string]any{"enabled": false},
		"config": map[string]any{"max-in-flight": 512}, "imagePullSecrets": []any{map[string]any{"name": "registry"}},
		"networkPolicy": map[string]any{"egress": []any{map[string]any{}}}, "podAnnotations": map[string]any{"a": "b"},
	})
	if text := objects["ConfigMap taxi-flows"].(*corev1.ConfigMap).Data["ping.yaml"]; text != "pipelines: []\n" {
		t.Errorf("have flows %q", text)
	}
	if text := objects["ConfigMap taxi-config"].(*corev1.ConfigMap).Data["node.yaml"]; !strings.Contains(text, "max-in-flight: 512") {
		t.Errorf("have config %q", text)
	}
	h := objects["HorizontalPodAutoscaler taxi"].(*autoscalingv2.HorizontalPodAutoscaler)
	if name := h.Spec.Metrics[0].Pods.Metric.Name; name != "procaas_inbox_oldest_seconds" {
		t.Errorf("have metric %s", name)
	}
	if objects["Job taxi-migrate"] != nil {
		t.Error("there is a migration")
	}
	pod := objects["Deployment taxi"].(*appsv1.Deployment).Spec.Template.Spec
	var volumes []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
	}
	if have := fmt.Sprint(volumes); have != "[config data flows tls secrets]" || env(pod.Containers[0], "PROCAAS_PIPELINES") != "/flows" {
		t.Errorf("have volumes %s", have)
	}
	image := render(t, map[string]any{"flows": map[string]any{"from": "image", "image": "flows:1"}})
	if init := image["Deployment taxi"].(*appsv1.Deployment).Spec.Template.Spec.InitContainers; len(init) != 1 || init[0].Image != "flows:1" {
		t.Errorf("have %+v, want the image with flows", init)
	}
}

func env(c corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return "(not set)"
}
