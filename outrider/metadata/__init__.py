"""What users and administrators write down: workspaces, policies, sets of nodes, times and sizes.

Texts and files become checked values here, each fault with its place. Nothing in this
package decides about slots, links or pools; that is the core's work.
"""
