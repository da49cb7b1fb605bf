#!/usr/bin/env bash
# Django REST framework: its check for times that do not exist, or exist twice, never refuses one.
#
# Versions: djangorestframework 3.18.3 with Django 5.2.19; the same on 3.16.1.
#
# Clocks of Berlin skip 02:30 on 2026-03-29, and show it twice on 2026-10-25. Django's form field refuses
# both. DateTimeField of REST framework has such a check, too, and an error message for it. It compares the
# time with the same time in UTC by `==`. Python defines that comparison as unequal for each time of a
# gap or a fold (PEP 495), so the check regards both as no such case, and both are valid input. The time of
# the gap is 03:30 when it is read back from a database; of the fold it is always the first one.
#
# What to do: accept only texts with an offset, or validate by round trip through UTC.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install djangorestframework==3.18.3 django==5.2.19 tzdata==2025.2

cat >"$FOLDER/expected" <<'EOF'
form 2026-03-29T02:30:00: refused
rest 2026-03-29T02:30:00: stored as 01:30 UTC, read back as 03:30
form 2026-10-25T02:30:00: refused
rest 2026-10-25T02:30:00: stored as 00:30 UTC, read back as 02:30
form 2026-06-01T02:30:00: stored as 00:30 UTC, read back as 02:30
rest 2026-06-01T02:30:00: stored as 00:30 UTC, read back as 02:30
EOF
python - >"$FOLDER/seen" <<'EOF'
from datetime import timezone

import django
from django.conf import settings

settings.configure(USE_TZ=True, TIME_ZONE="Europe/Berlin")
django.setup()
from django import forms
from rest_framework import serializers

for text in ("2026-03-29T02:30:00", "2026-10-25T02:30:00", "2026-06-01T02:30:00"):
    fields = {"form": forms.DateTimeField().clean, "rest": serializers.DateTimeField().run_validation}
    for name, validate in fields.items():
        try:
            value = validate(text)
        except (forms.ValidationError, serializers.ValidationError):
            print(f"{name} {text}: refused")
            continue
        stored = value.astimezone(timezone.utc)
        print(f"{name} {text}: stored as {stored:%H:%M} UTC,", end=" ")
        print(f"read back as {stored.astimezone(value.tzinfo):%H:%M}")
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
