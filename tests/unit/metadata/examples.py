"""A workspace and policies without faults."""

from __future__ import annotations

WORKSPACE = """\
version: 1
metadata:
  name: osg
  image:
    uri: https://images.example.org/osg-worker.qcow2
    digest: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    size: 600MB
    format: qcow2
    private: true
  roles:
    - name: head
      hosts: osg-head
      addresses: 10.1.0.1
      user_data: |
        #cloud-config
        packages: [condor]
    - name: worker
      hosts: osg-w[001-100]
      addresses: 10.1.1.[1-100]
      files:
        - path: /etc/condor/config.d/head
          content: CONDOR_HOST = osg-head
          mode: "0600"
deployment:
  nodes: 50
  instances_per_node: 2
  cpus: 2
  memory: 4GiB
  gpus: 1
  duration: 2h30m
  start: tomorrow 16:00
  finish_by: 2026-11-23T12:00
"""

POLICIES = """\
version: 1
deny:
  - users: [mallory]
    groups: [expired]
    because: the account is closed, write to help@example.org
machine_share: 80%
rules:
  - name: operators
    groups: [wheel]
  - name: guests
    users: [guest]
    may_reserve: false
    because: guests submit as best effort
  - name: physics
    accounts: [physics]
    ahead: 14d
    duration: 2d
    node_hours: 1000
    reservations: 3
    image_size: 50GB
    account_share: 30%
  - name: everybody
    ahead: 2d
    duration: 8h
    machine_share: 40%
external:
  command: [/usr/local/sbin/may-reserve, --site, cluster1]
  timeout: 5s
  when_it_fails: refuse
"""
