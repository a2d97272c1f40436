"""What Prometheus and Grafana read: exposition, OpenMetrics files, dashboards."""
