"""A lattice to be filled with words, one of which no model knows."""

LATTICE = """\
VERSION=1.0
UTTERANCE={name}
lmscale=2 wdpenalty=-0.5
N=4 L=6
I=0 t=0
I=1 t=0.5
I=2 t=1.5
I=3 t=2
J=0 S=0 E=1 W=w{0} a=-1 l=-1
J=1 S=0 E=1 W=w{1} a=-2 l=-2
J=2 S=1 E=2 W=w{2} a=-2 l=-1
J=3 S=1 E=2 W=w{3} a=-1 l=-2
J=4 S=1 E=2 W=zebra a=-4 l=-2
J=5 S=2 E=3 W=!SENT_END a=0 l=-1
"""
