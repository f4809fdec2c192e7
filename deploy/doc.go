// Package deploy holds what operators run a relay or an issuer with: a systemd unit, a Dockerfile,
// Grafana dashboards and alert rules. docs/deployment.md is the guide; the tests here hold the files to the
// program.
package deploy
